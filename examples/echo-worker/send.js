// A session that submits jobs to the echo workers and prints their results.
//
//   node examples/echo-worker/send.js                 20 jobs, 10 a second
//   node examples/echo-worker/send.js 1000 50
//   node examples/echo-worker/send.js forever 5       until Ctrl-C
//
// Stop a worker, an agent or the server meanwhile: every job is still answered once.

import { setTimeout as wait } from "node:timers/promises";
import { Session } from "@tenure/sdk";
import { findDevToken } from "@tenure/sdk/dev-token";

const {
  TENURE_URL: url = "http://127.0.0.1:7070",
  TENURE_TOKEN: token = findDevToken(url),
  ECHO_POOL = "echo",
} = process.env;
const [count = "20", perSecond = "10"] = process.argv.slice(2);
const jobsMax = count === "forever" ? Number.POSITIVE_INFINITY : Number(count);

const session = new Session({ url, token });
const stopping = new AbortController();
process.once("SIGINT", () => stopping.abort());
process.once("SIGTERM", () => stopping.abort());

/** @type {Map<string, number>} */
const byNode = new Map();
let failed = 0;

/** @param {number} n */
async function send(n) {
  const startedMs = performance.now();
  const say = `hello ${n}`;
  try {
    const {
      node_id = "?",
      attempt_id,
      body,
    } = await session.submit({
      pool: ECHO_POOL,
      payload: { say, work_ms: 100 },
    });
    if (/** @type {{ say?: string }} */ (body).say !== say)
      throw new Error("the answer is not the text that was sent");
    byNode.set(node_id, (byNode.get(node_id) ?? 0) + 1);
    const tookMs = Math.round(performance.now() - startedMs);
    console.log(`${say}: ${node_id.slice(0, 8)} attempt ${attempt_id}, ${tookMs} ms`);
  } catch (error) {
    failed += 1;
    console.log(`${say}: ${error instanceof Error ? error.message : error}`);
  }
}

/** @type {Set<Promise<void>>} */
const open = new Set();
for (let n = 1; n <= jobsMax && !stopping.signal.aborted; n++) {
  const sent = send(n).finally(() => open.delete(sent));
  open.add(sent);
  await wait(1_000 / Number(perSecond), undefined, { signal: stopping.signal }).catch(() => {});
}
await Promise.all(open);
await session.close();

const shares = [...byNode].map(([node, jobs]) => `${node.slice(0, 8)} ${jobs}`).join(", ");
console.log(`answered by ${shares || "no worker"}; ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
