// BullMQ with its defaults: a worker to be killed, or whoever adds the jobs and tells when each began.

import { setTimeout as wait } from "node:timers/promises";
import { Queue, QueueEvents, Worker } from "bullmq";

const { role, port, concurrency, jobs, workMs } = JSON.parse(process.argv[2] ?? "{}");
const connection = { host: "127.0.0.1", port };
const QUEUE = "proof";

if (role === "worker") {
  const worker = new Worker(
    QUEUE,
    async () => {
      const beganMs = Date.now();
      console.log("began");
      await wait(workMs);
      return { beganMs, pid: process.pid };
    },
    { connection, concurrency },
  );
  await worker.waitUntilReady();
  console.log("ready");
} else {
  const queue = new Queue(QUEUE, { connection });
  const events = new QueueEvents(QUEUE, { connection });
  await events.waitUntilReady();
  let ended = 0;
  events.on("completed", ({ returnvalue }) => {
    console.log(`ended ${JSON.stringify(returnvalue)}`);
    ended += 1;
    if (ended === jobs) console.log("all ended");
  });
  for (let n = 0; n < jobs; n++) await queue.add("job", {});
  console.log("added");
}
