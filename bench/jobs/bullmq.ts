import { Queue, QueueEvents, Worker } from "bullmq";
import { type Begun, createAwaited, POOL, type Run, type SubmitJob, type Timed } from "./drive.ts";

const connectionTo = (port: number) => ({ host: "127.0.0.1", port });

export async function workForBullmq(
  { port, capacity }: { port: number; capacity: number },
  run: Run,
): Promise<void> {
  const options = { connection: connectionTo(port), concurrency: capacity };
  await new Worker<Timed, Begun>(POOL, ({ data }) => run(data), options).waitUntilReady();
}

/** One listener for all: `waitUntilFinished` sets up three of its own per job, and is slower. */
export async function submitToBullmq({ port }: { port: number }): Promise<SubmitJob> {
  const connection = connectionTo(port);
  const queue = new Queue<Timed, Begun>(POOL, { connection });
  const events = new QueueEvents(POOL, { connection });
  const awaited = createAwaited<string>();
  events.on("completed", ({ jobId, returnvalue }) =>
    awaited.arrived(jobId, returnvalue as unknown as Begun),
  );
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
  return async (payload) => awaited.result((await queue.add("job", payload)).id ?? "");
}
