import assert from "node:assert";
import { join } from "node:path";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { startRedis } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import { type Answer, createJobScene, POOL } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

const WORKERS = 3;
const JOBS = 12;
const CAPACITY = JOBS;
const WORK_MS = 4_000;
const IN_VAIN_MAX = 3;
const TARGET_MS = 2_000;
/** A machine that does ten other things at once may take its time; more than that is a deadline that ran out. */
const CI_LIMIT_MS = 20_000;

export const jobsRedispatch: Proof = {
  name: "jobs-redispatch",
  summary:
    "kill -9 of a worker: how soon its jobs run on another, beside BullMQ killed the same way",
  async run({ size, print }: ProofRun) {
    const delaysMs = await killOurs(size === "full" ? 25 : 3);
    print(`ours: ${delaysMs.length} jobs of killed workers began again: ${spread(delaysMs)}`);
    if (size === "full") print(`BullMQ, its defaults: ${spread(await killBullmq())}`);
    const limitMs = size === "full" ? TARGET_MS : CI_LIMIT_MS;
    assert(at(delaysMs, 0.99) <= limitMs, `p99 over ${limitMs} ms`);
  },
};

async function killOurs(rounds: number): Promise<number[]> {
  const scene = await createJobScene("redis");
  try {
    const [a, b] = [await scene.startInstance(), await scene.startInstance()];
    const start = () => scene.startWorker({ url: [a.url, b.url], capacity: CAPACITY });
    const workers: RunningProcess[] = [];
    for (let n = 0; n < WORKERS; n++) workers.push(await start());
    const session = scene.openSession({ url: b.url });
    const delaysMs: number[] = [];
    for (let round = 0, inVain = 0; round < rounds; ) {
      const ran = workers.map((worker) => begun(worker));
      const jobs = Array.from({ length: JOBS }, () =>
        session.submit<Answer>({ pool: POOL, payload: { work_ms: WORK_MS } }),
      );
      const shares = () => workers.map((worker, n) => begun(worker) - ran[n]!);
      // As soon as one has its share, while it has it: the others may be late.
      const busy = () => shares().some((share) => share >= JOBS / WORKERS);
      await until(busy, { deadlineMs: 60_000, what: "a worker with its share of the jobs" });
      const at = shares().indexOf(Math.max(...shares()));
      const killedMs = Date.now();
      await workers[at]!.kill9();
      const results = await Promise.all(jobs);
      const again = results.filter(({ attempt_id }) => attempt_id > 1);
      delaysMs.push(...again.map(({ body }) => body.beganMs - killedMs));
      workers[at] = await start();
      // The jobs may be over before a slow machine comes to the kill: that shows nothing, and is done again.
      if (again.length > 0) round += 1;
      else assert(++inVain < IN_VAIN_MAX, "the killed worker had no job");
    }
    await scene.untilAllSlotsAreFree();
    return delaysMs;
  } finally {
    await scene.stop();
  }
}

const begun = (worker: RunningProcess): number => worker.stdout().split("\nran ").length - 1;

/** Two workers, one is killed with half of the jobs: the other gets them when their locks are found stale. */
async function killBullmq(): Promise<number[]> {
  const redis = await startRedis();
  const started: RunningProcess[] = [];
  const start = (options: object) => {
    const args = [join(repositoryRoot, "tests/prove/jobs-bull.js"), JSON.stringify(options)];
    const running = startProcess({ command: process.execPath, args });
    started.push(running);
    return running;
  };
  try {
    const options = { port: redis.port, concurrency: JOBS, workMs: 3_000, jobs: JOBS };
    const victim = start({ role: "worker", ...options });
    await victim.waitForLine(/^ready$/, 30_000);
    const load = start({ role: "load", ...options });
    await load.waitForLine(/^added$/, 30_000);
    await until(() => victim.stdout().split("began").length > JOBS, { what: "all to run" });
    await start({ role: "worker", ...options }).waitForLine(/^ready$/, 30_000);
    const killedMs = Date.now();
    await victim.kill9();
    await load.waitForLine(/^all ended$/, 300_000);
    const ends = [...load.stdout().matchAll(/^ended (.*)$/gm)];
    return ends.map(([, json = ""]) => (JSON.parse(json) as Answer).beganMs - killedMs);
  } finally {
    await Promise.all(started.map((each) => each.kill9()));
    await redis.discard();
  }
}

function at(valuesMs: readonly number[], share: number): number {
  const sorted = valuesMs.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

const spread = (valuesMs: readonly number[]): string =>
  `p50 ${at(valuesMs, 0.5)} ms, p99 ${at(valuesMs, 0.99)} ms`;
