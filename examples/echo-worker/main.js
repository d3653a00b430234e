// A worker that returns its payload. Run it by hand, or let the fleet run it as a deployment:
//
//   npm start                                         (in another terminal)
//   node examples/echo-worker/main.js
//   node examples/echo-worker/send.js
//
//   tenure deployment create --name echo --command node --arg "$PWD/examples/echo-worker/main.js" --count 2
//
// As a deployment it gets the URL of the server (TENURE_URL), its deployment id (TENURE_DEPLOYMENT_ID) and the number of its
// term (TENURE_FENCING_TOKEN), which only rises. Its writes to other systems should carry that number.

import { setTimeout as wait } from "node:timers/promises";
import { closeOnSignal, modelNotAvailable, Worker } from "@tenure/sdk";
import { findDevToken } from "@tenure/sdk/dev-token";

const {
  TENURE_URL: url = "http://127.0.0.1:7070",
  TENURE_TOKEN: token = findDevToken(url),
  TENURE_DEPLOYMENT_ID: deployment = "",
  TENURE_FENCING_TOKEN: term = "",
  ECHO_POOL: pool = "echo",
  ECHO_CAPACITY: capacity = "4",
} = process.env;

/**
 * @typedef {object} Wish
 * @property {unknown} [say] The text to return.
 * @property {number} [work_ms] How long to work on it.
 * @property {number} [steps] How often to report progress.
 * @property {string} [fail] Fail with these words instead.
 * @property {string} [missing] Act as if this service were not here.
 */

/** @type {Worker<Wish>} */
const worker = new Worker({
  url,
  token,
  pools: [pool],
  capacity: Number(capacity),
  name: deployment ? `echo ${deployment.slice(0, 8)}` : "echo",
  labels: { ...(deployment && { deployment }), ...(term && { term }) },
  async run({ payload, attempt_id }, { signal, progress }) {
    const { say, work_ms = 0, steps = 1, fail, missing } = payload ?? {};
    for (let step = 1; step <= steps; step++) {
      // An abort ends the wait, and with it the job.
      await wait(work_ms / steps, undefined, { signal });
      if (step < steps) progress({ step, steps });
    }
    if (missing) throw modelNotAvailable(missing);
    if (fail) throw new Error(fail);
    return { say, attempt: attempt_id, pid: process.pid, term };
  },
  on: {
    ready: ({ node_id, instance_id }) => console.log(`${node_id} is connected to ${instance_id}`),
    down: ({ reason }) => console.log(`connection lost: ${reason}`),
  },
});

// Running jobs may end before it disconnects. Jobs that do not end in time go to another worker.
closeOnSignal(worker, { withinMs: 8_000 });
