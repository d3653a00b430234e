import assert from "node:assert";
import { JobFailed } from "@tenure/sdk";
import type { RunningProcess } from "@tenure/testing/processes/process";
import { type Ended, outcomesOf, slowest, startLoad, unlucky } from "./jobs-load.ts";
import { assertEndedOnce, createJobScene, PATIENT, POOL, readJob } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

const ATTEMPTS_MAX = 3;
const WORKERS = 4;

export const jobsPoison: Proof = {
  name: "jobs-poison",
  summary: "a job that kills its worker ends after its attempts and says why; the others go on",
  async run({ size, print }: ProofRun) {
    const poisons = size === "full" ? 10 : 2;
    const scene = await createJobScene("redis", {
      env: { ...PATIENT, TENURE_JOB_TIMEOUT_ATTEMPTS_MAX: String(ATTEMPTS_MAX) },
    });
    let isOver = false;
    try {
      const [a, b] = [await scene.startInstance(), await scene.startInstance()];
      let deaths = 0;
      const start = () => scene.startWorker({ url: [a.url, b.url], capacity: 4 });
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
      const load = startLoad([session], { perSecond: 20, workMs: 20 });
      for (let n = 0; n < poisons; n++) {
        const failure = await session
          .submit({ pool: POOL, payload: { poison: true } })
          .catch((error: unknown) => error);
        assert(failure instanceof JobFailed, `poison ended as ${failure}`);
        assert.equal(failure.outcome, "attempts_exhausted");
        assert.equal(failure.code, "ATTEMPTS_EXHAUSTED");
        const { attempt_id, timeline } = await assertEndedOnce(a.url, failure.result!);
        assert(attempt_id <= ATTEMPTS_MAX, `it was tried ${attempt_id} times`);
        // A worker says that it has a job before it lets the job do anything: so it is known who was poisoned.
        assert(
          timeline.some(({ state }) => state === "RUNNING"),
          "nobody knows that it ran",
        );
        if (n === 0) print(`it says: ${failure.message}`);
      }
      const ended = await load.finish();
      print(
        `${poisons} poisoned jobs killed ${deaths} workers; meanwhile ${ended.length} others: ` +
          `${outcomesOf(ended)}, slowest ${slowest(ended)} ms`,
      );
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
  },
};

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
