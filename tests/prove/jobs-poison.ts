import assert from "node:assert";
import { JobFailed } from "@tenure/sdk";
import type { RunningProcess } from "@tenure/testing/processes/process";
import { until } from "@tenure/testing/until";
import { type Ended, type JobLoad, outcomesOf, slowest, startLoad, unlucky } from "./jobs-load.ts";
import { assertEndedOnce, createJobScene, PATIENT, POOL, readJob } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

const ATTEMPTS_MAX = 3;
const WORKERS = 4;
/** Jobs of this pool end at once. A worker starts them in silence when it has run 20 of them. */
const FAST_POOL = "fast";
const POOLS = [POOL, FAST_POOL];
/** Enough that each worker, also one that was started just now, has run 20. */
const WARM_JOBS = WORKERS * 40;

export const jobsPoison: Proof = {
  name: "jobs-poison",
  summary:
    "a job that kills or blocks its worker, also one whose start was not reported, costs no more than itself",
  async run(proof: ProofRun) {
    await killWorkers(proof);
    await blockWorkers(proof);
  },
};

/** Every other poisoned job is of a pool whose jobs are started in silence: it kills in its first millisecond. */
async function killWorkers({ size, print }: ProofRun): Promise<void> {
  const poisons = size === "full" ? 10 : 2;
  const scene = await createJobScene("redis", {
    env: { ...PATIENT, TENURE_JOB_TIMEOUT_ATTEMPTS_MAX: String(ATTEMPTS_MAX) },
  });
  let isOver = false;
  try {
    const [a, b] = [await scene.startInstance(), await scene.startInstance()];
    let deaths = 0;
    const start = () => scene.startWorker({ url: [a.url, b.url], capacity: 4, pools: POOLS });
    const keepAlive = async (first: RunningProcess): Promise<void> => {
      // One that is killed by its first job may be gone before its first word got out.
      for (let worker: RunningProcess | undefined = first; ; worker = await start().catch(none)) {
        await worker?.exited;
        if (isOver) return;
        deaths += 1;
      }
    };
    for (let n = 0; n < WORKERS; n++) void keepAlive(await start());
    const session = scene.openSession({ url: b.url });
    const slow = startLoad([session], { perSecond: 20, workMs: 20 });
    const fast = startLoad([session], { perSecond: 100, workMs: 0, pool: FAST_POOL });
    const lost = { silent: 0, reported: 0 };
    for (let n = 0; n < poisons; n++) {
      const pool = POOLS[n % 2]!;
      if (pool === FAST_POOL) await untilWarm(fast);
      const failure = await session
        .submit({ pool, payload: { poison: true } })
        .catch((error: unknown) => error);
      assert(failure instanceof JobFailed, `poison ended as ${failure}`);
      assert.equal(failure.outcome, "attempts_exhausted");
      assert.equal(failure.code, "ATTEMPTS_EXHAUSTED");
      const { attempt_id, timeline } = await assertEndedOnce(a.url, failure.result!);
      // Each attempt counts, whether its start was reported or not.
      assert.equal(attempt_id, ATTEMPTS_MAX, `it was tried ${attempt_id} times`);
      for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
        const isReported = timeline.some(
          (entry) => entry.attempt_id === attempt && entry.state === "RUNNING",
        );
        if (pool === POOL) assert(isReported, "the start of a job in a slow pool is reported");
        lost[isReported ? "reported" : "silent"] += 1;
      }
      if (n === 0) print(`it says: ${failure.message}`);
    }
    const ended = [...(await slow.finish()), ...(await fast.finish())];
    print(
      `${poisons} poisoned jobs killed ${deaths} workers, ${lost.silent} of them before the start of the job was reported; ` +
        `meanwhile ${ended.length} others: ${outcomesOf(ended)}, slowest ${slowest(ended)} ms`,
    );
    // Not each: some may be on a worker that was started just now, or that is too slow for silence.
    if (size === "full") assert(lost.silent > 0, "no job killed its worker in silence");
    assert(deaths <= poisons * ATTEMPTS_MAX, "more workers died than were poisoned");
    for (const bystander of unlucky(ended)) await assertPoisoned(a.url, bystander);
    const shared = ended.filter(({ result }) => result.attempt_id > 1);
    for (const { result } of shared) await assertMissedAtOnce(a.url, result.job_id);
    print(
      `${shared.length} of the others shared a worker with poison and were tried again; ${unlucky(ended).length} were with ` +
        `poison in each of their ${ATTEMPTS_MAX} attempts`,
    );
    await scene.untilAllSlotsAreFree();
  } finally {
    isOver = true;
    await scene.stop();
  }
}

const BLOCK_MS = 8_000;

/** With the ack timeout of 5 s that is the default: a worker that is blocked for longer cannot report a start. */
async function blockWorkers({ print }: ProofRun): Promise<void> {
  const scene = await createJobScene("redis");
  try {
    const { url } = await scene.startInstance();
    await scene.startWorker({ url, capacity: 4, pools: POOLS });
    const session = scene.openSession({ url });
    const fast = startLoad([session], { perSecond: 100, workMs: 0, pool: FAST_POOL });
    for (const pool of POOLS) {
      await untilWarm(fast);
      const { job_id, attempt_id } = await session.submit({
        pool,
        payload: { block_ms: BLOCK_MS },
      });
      const { timeline } = await readJob(url, job_id);
      const failures = timeline.filter(({ reason }) => reason).map(({ reason }) => reason);
      assert.equal(attempt_id, 1, `a run that blocks was tried again: ${failures}`);
      print(`a run in the ${pool} pool blocked its worker for 8 s and ended in attempt 1`);
    }
    const ended = await fast.finish();
    // Those that were sent to the blocked worker wait there. It was not lost, so they are not tried again.
    assert.deepEqual(unlucky(ended), []);
    const again = ended.filter(({ result }) => result.attempt_id > 1).length;
    print(
      `of ${ended.length} others on that worker ${again} were tried again: ${outcomesOf(ended)}`,
    );
    await scene.untilAllSlotsAreFree();
  } finally {
    await scene.stop();
  }
}

async function untilWarm(load: JobLoad): Promise<void> {
  const from = load.submitted - load.open;
  const isWarm = () => load.submitted - load.open >= from + WARM_JOBS;
  await until(isWarm, { deadlineMs: 60_000, what: `${WARM_JOBS} short jobs` });
}

/** The only excuse there is for who did no harm: every worker it was on was killed under it. */
async function assertPoisoned(url: string, { result }: Ended): Promise<void> {
  const { outcome, timeline } = await assertEndedOnce(url, result);
  const losses = timeline.filter(({ reason }) => reason?.startsWith("its node was lost")).length;
  assert.equal(outcome, "attempts_exhausted");
  assert(losses >= ATTEMPTS_MAX, `${result.job_id} gave up after ${losses} lost workers`);
}

/** Each worker's end is seen by the instance it was connected to. Nobody's job has to wait until its slot runs out. */
async function assertMissedAtOnce(url: string, jobId: string): Promise<void> {
  const { timeline } = await readJob(url, jobId);
  const overdue = timeline.filter(({ reason }) => reason?.includes("slot expired"));
  assert.deepEqual(overdue, [], `${jobId} was found only when its slot expired`);
}

const none = (): undefined => undefined;
