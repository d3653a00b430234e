// A worker in a process of its own, to be killed. Options come as JSON; what it runs goes to standard output.

import { setTimeout as wait } from "node:timers/promises";
import { closeOnSignal, Worker } from "@tenure/sdk";

const { url, pools, capacity } = JSON.parse(process.argv[2] ?? "{}");

const worker = new Worker({
  url,
  pools,
  capacity,
  async run({ job_id, attempt_id, payload }, { signal }) {
    const beganMs = Date.now();
    console.log(`ran ${job_id} ${attempt_id}`);
    const { say, work_ms = 0, block_ms = 0, poison = false, result_chars = 0 } = payload ?? {};
    if (poison) process.kill(process.pid, "SIGKILL");
    // The event loop, too: nothing is sent or received meanwhile.
    if (block_ms > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, block_ms);
    if (work_ms > 0) await wait(work_ms, undefined, { signal });
    const filling = result_chars > 0 ? { filling: "r".repeat(result_chars) } : {};
    return { say, beganMs, pid: process.pid, ...filling };
  },
  on: { ready: ({ instance_id }) => console.log(`connected to ${instance_id}`) },
});
closeOnSignal(worker, { withinMs: 5_000 });
