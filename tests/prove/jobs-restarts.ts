import assert from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import type { RunningProcess } from "@tenure/testing/processes/process";
import { createSeeded, type Seeded } from "@tenure/testing/seeded";
import { HOT_KINDS, type HotKind, type Instance } from "./fleet.ts";
import { type Ended, outcomesOf, slowest, startLoad, unlucky } from "./jobs-load.ts";
import { assertEndedOnce, createJobScene, type JobScene, PATIENT, readJob } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

const INSTANCES = 2;
const WORKERS = 4;
// Three workers have more than half of their slots free at full size: a job that fails had a free one.
const CAPACITY = 60;
const WORK_MS = 200;
const CHECKED_MAX = 500;
const SHOWN_MAX = 5;

/** I5, I6 and I11 for stops in good order: a deploy costs no job. */
export const jobsRestarts: Proof = {
  name: "jobs-restarts",
  summary: "SIGTERM restarts of instances and workers under load: every job succeeds, each once",
  async run(run) {
    const kinds = run.size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1);
    for (const hot of kinds) await runOn(hot, run);
  },
};

async function runOn(hot: HotKind, { size, seed, count, print }: ProofRun): Promise<void> {
  const restarts = count ?? (size === "full" ? 100 : 3);
  const perSecond = size === "full" ? 500 : 40;
  const scene = await createJobScene(hot, { env: PATIENT });
  const seeded = createSeeded(seed);
  try {
    const crowd = await gather(scene);
    const sessions = [0, 1, 2, 3].map((n) =>
      scene.openSession({ url: crowd.urlsFrom(n), patienceMs: 300_000 }),
    );
    const load = startLoad(sessions, { perSecond, workMs: WORK_MS });
    const startedMs = performance.now();
    for (const what of inAnyOrder(restarts, seeded)) {
      await wait(seeded.between(200, 1_000));
      await crowd.restart(what, seeded);
    }
    await wait(1_000);
    const ended = await load.finish();
    const tookS = ((performance.now() - startedMs) / 1_000).toFixed(0);
    const again = ended.filter(({ result }) => result.attempt_id > 1);
    print(
      `${hot}: ${restarts} restarts of instances and ${restarts} of workers in ${tookS} s under ${perSecond}/s: ` +
        `${ended.length} jobs, ${outcomesOf(ended)}; ${again.length} in more than one attempt, at most ` +
        `${attemptsOf(ended)}; slowest ${slowest(ended)} ms`,
    );
    const { url } = crowd.instances[0]!;
    const failed = unlucky(ended);
    for (const { result } of failed.slice(0, SHOWN_MAX))
      print(JSON.stringify((await readJob(url, result.job_id)).timeline));
    assert.equal(failed.length, 0, `${outcomesOf(failed)}: a restart cost them`);
    const ids = new Set(ended.map(({ result }) => result.job_id));
    assert.equal(ids.size, ended.length, "two requests got one job");
    for (const { result } of ended.slice(-CHECKED_MAX)) await assertEndedOnce(url, result);
    await scene.untilAllSlotsAreFree();
    await scene.untilNothingIsLeft();
    print(`${hot}: all slots are free, nothing is left to look after`);
  } finally {
    await scene.stop();
  }
}

type Restarted = "instance" | "worker";

/** As many of each, shuffled. */
function inAnyOrder(each: number, seeded: Seeded): Restarted[] {
  const left = { instance: each, worker: each };
  return Array.from({ length: 2 * each }, () => {
    const share = left.instance / (left.instance + left.worker);
    const what = seeded.fraction() < share ? "instance" : "worker";
    left[what] -= 1;
    return what;
  });
}

/** Instances and workers, each of which can be stopped in good order and has a successor then. */
async function gather(scene: JobScene) {
  const instances: Instance[] = [];
  for (let n = 0; n < INSTANCES; n++) instances.push(await scene.startInstance());
  const urlsFrom = (n: number) => {
    const urls = instances.map(({ url }) => url);
    return [...urls.slice(n % urls.length), ...urls.slice(0, n % urls.length)];
  };
  const startWorker = (n: number) => scene.startWorker({ url: urlsFrom(n), capacity: CAPACITY });
  const workers: RunningProcess[] = [];
  for (let n = 0; n < WORKERS; n++) workers.push(await startWorker(n));

  async function stop(running: RunningProcess): Promise<void> {
    const exit = await running.stop();
    const wrote = `${running.stdout()}${running.stderr()}`.slice(-2_000);
    assert.equal(exit.code, 0, `a stop in good order: ${JSON.stringify(exit)}, wrote:\n${wrote}`);
  }

  return {
    instances,
    urlsFrom,
    /** The successor of an instance listens where it did, as a restarted service would. */
    async restart(what: Restarted, seeded: Seeded): Promise<void> {
      if (what === "instance") {
        const at = Math.floor(seeded.between(0, INSTANCES));
        const former = instances[at]!;
        await stop(former);
        instances[at] = await scene.startInstance({ port: Number(new URL(former.url).port) });
      } else {
        const at = Math.floor(seeded.between(0, WORKERS));
        await stop(workers[at]!);
        workers[at] = await startWorker(at);
      }
    },
  };
}

const attemptsOf = (ended: readonly Ended[]): number =>
  ended.reduce((most, { result }) => Math.max(most, result.attempt_id), 0);
