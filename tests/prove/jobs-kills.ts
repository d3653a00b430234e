import assert from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import type { RunningProcess } from "@tenure/testing/processes/process";
import { createSeeded, type Seeded } from "@tenure/testing/seeded";
import { HOT_KINDS, type HotKind, type Instance } from "./fleet.ts";
import { outcomesOf, slowest, startLoad, unlucky } from "./jobs-load.ts";
import { assertEndedOnce, createJobScene, type JobScene, PATIENT } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

const INSTANCES = 2;
const WORKERS = 4;
// Together twice what is asked for at full size: what does not succeed then was not merely too much.
const CAPACITY = 60;
const CHECKED_MAX = 500;

/** I5, I6 and I11 with real processes. */
export const jobsKills: Proof = {
  name: "jobs-kills",
  summary:
    "random kill -9 of instances and workers under load: every job ends once, no slot is left",
  async run(run) {
    const kinds = run.size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1);
    for (const hot of kinds) await runOn(hot, run);
  },
};

async function runOn(hot: HotKind, { size, seed, print }: ProofRun): Promise<void> {
  const kills = size === "full" ? 200 : 8;
  // Three masters beside everything else need a core of their own: half the load is what two cores bear.
  const fullRate = hot === "redis" ? 500 : 250;
  const perSecond = size === "full" ? fullRate : 40;
  const scene = await createJobScene(hot, { env: PATIENT });
  const seeded = createSeeded(seed);
  try {
    const crowd = await gather(scene);
    const sessions = [0, 1, 2, 3].map((n) =>
      scene.openSession({ url: crowd.urlsFrom(n), patienceMs: 300_000 }),
    );
    const load = startLoad(sessions, { perSecond, workMs: 200 });
    const startedMs = performance.now();
    for (let kill = 0; kill < kills; kill++) {
      await wait(seeded.between(200, 1_500));
      await crowd.killOne(seeded);
    }
    const ended = await load.finish();
    const tookS = ((performance.now() - startedMs) / 1_000).toFixed(0);
    print(
      `${hot}: ${crowd.killed.instances} instances and ${crowd.killed.workers} workers killed in ${tookS} s ` +
        `under ${perSecond}/s: ${ended.length} jobs, ${outcomesOf(ended)}; slowest ${slowest(ended)} ms`,
    );
    const again = ended.filter(({ result }) => result.attempt_id > 1).length;
    assert(again > 0, "no job needed a second attempt: nothing was shown");
    const failed = unlucky(ended).filter(({ result }) => result.outcome !== "attempts_exhausted");
    assert.equal(
      failed.length,
      0,
      `${outcomesOf(failed)}: only who lost worker after worker may fail`,
    );
    const ids = new Set(ended.map(({ result }) => result.job_id));
    assert.equal(ids.size, ended.length, "two requests got one job");
    const { url } = crowd.instances[0]!;
    for (const { result } of ended.slice(-CHECKED_MAX)) await assertEndedOnce(url, result);
    print(`${hot}: ${again} were tried again; each of the last ${CHECKED_MAX} records ended once`);
    await scene.untilAllSlotsAreFree();
    print(`${hot}: all slots are free`);
  } finally {
    await scene.stop();
  }
}

/** Instances and workers; whoever is killed has a successor. */
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
  const killed = { instances: 0, workers: 0 };

  return {
    instances,
    killed,
    urlsFrom,
    /** One of four is an instance. Its successor listens where it did, as a restarted service would. */
    async killOne(seeded: Seeded): Promise<void> {
      if (seeded.fraction() < 0.25) {
        const at = Math.floor(seeded.between(0, INSTANCES));
        const { url, kill9 } = instances[at]!;
        await kill9();
        instances[at] = await scene.startInstance({ port: Number(new URL(url).port) });
        killed.instances += 1;
      } else {
        const at = Math.floor(seeded.between(0, WORKERS));
        await workers[at]!.kill9();
        workers[at] = await startWorker(at);
        killed.workers += 1;
      }
    },
  };
}
