// Two instances, a worker on A, a session on B: the job goes through both and its result comes back.
//
//   npm run build && node examples/two-instances/main.js
//
// Uses REDIS_URL and POSTGRES_URI when they are set; else it starts a Redis and a Postgres of its own, in a temporary
// directory, and stops them at the end. Ports 7071 and 7072, or A_PORT and B_PORT.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { createAdmin, ROUTES, Session, Worker } from "@tenure/sdk";
import { openStores } from "./stores.js";

/** The states that the session must receive, in this order. */
const STATES = ["DISPATCHED", "ACCEPTED", "RUNNING"];
const READY_WITHIN_MS = 60_000;

/** @typedef {{ stop(): Promise<void> }} Stoppable */

try {
  await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

async function main() {
  const stores = await openStores();
  /** @type {Stoppable[]} Newest first: a process is stopped before those it depends on. */
  const running = [stores];
  try {
    const a = await startInstance("a", { port: process.env.A_PORT, env: stores.env });
    running.unshift(a);
    const b = await startInstance("b", { port: process.env.B_PORT, env: stores.env });
    running.unshift(b);
    await smokeTest(a.url, b.url);
  } finally {
    for (const each of running) await each.stop();
  }
}

/** @param {string} urlA @param {string} urlB */
async function smokeTest(urlA, urlB) {
  let markReceived = () => {};
  const received = new Promise((resolve) => {
    markReceived = () => resolve(undefined);
  });
  const worker = new Worker({
    url: urlA,
    pools: ["smoke"],
    capacity: 1,
    async run({ payload }) {
      await received; // A job that ends at once would have no states in between.
      return { echo: payload };
    },
    on: { ready: ({ instance_id }) => console.log(`worker connected to ${instance_id}`) },
  });
  const session = new Session({
    url: urlB,
    on: { ready: ({ instance_id }) => console.log(`session connected to ${instance_id}`) },
  });
  try {
    const job = session.submit({ pool: "smoke", payload: "hello from b" });
    /** @type {string[]} */
    const states = [];
    for await (const event of job) {
      if (event.type === "job_update") states.push(event.state);
      if (states.includes("RUNNING")) markReceived();
      console.log(`  ${event.type} ${event.type === "job_update" ? event.state : ""}`);
    }
    const { job_id, node_id, body } = await job;
    console.log(`  job_result ${JSON.stringify(body)} from ${node_id}`);
    const seen = STATES.filter((state) => states.includes(state));
    if (seen.join() !== STATES.join()) throw new Error(`the session received only ${states}`);
    await showTimeline(urlA, job_id);
    console.log("the job went from b to a and back: it works");
  } finally {
    await session.close();
    await worker.close();
  }
}

/** Any instance knows every job. @param {string} url @param {string} id */
async function showTimeline(url, id) {
  const { timeline } = await createAdmin({ url }).call(ROUTES.readJob, { params: { id } });
  for (const { at, state, attempt_id, instance_id } of timeline)
    console.log(`  ${at} ${state.padEnd(10)} attempt ${attempt_id}, by ${instance_id ?? "?"}`);
}

/**
 * @param {"a" | "b"} name
 * @param {{ port: string | undefined, env: Record<string, string> }} options
 */
async function startInstance(name, { port, env }) {
  const here = (/** @type {string} */ path) => fileURLToPath(new URL(path, import.meta.url));
  const tenure = here("../../packages/cli/bin/tenure.js");
  const dataDir = join(env.TENURE_SERVER_DATA_DIR ?? "", name);
  const args = [tenure, "server", "--config", here(`./${name}.toml`), "--log-level", "warn"];
  const child = spawn(process.execPath, [...args, ...(port ? ["--port", port] : [])], {
    env: { PATH: process.env.PATH ?? "", ...env, TENURE_SERVER_DATA_DIR: dataDir },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const late = setTimeout(() => child.kill("SIGKILL"), READY_WITHIN_MS);
  for await (const line of createInterface({ input: child.stdout })) {
    const url = /ready at (\S+)/.exec(line)?.[1];
    if (!url) continue;
    clearTimeout(late);
    console.log(`instance ${name} is ready at ${url}`);
    const stop = async () => {
      child.kill("SIGTERM");
      await exited;
    };
    return { url, stop };
  }
  clearTimeout(late);
  throw new Error(`instance ${name} did not start`);
}
