import assert from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import { JobFailed, type JobResult, type Session } from "@tenure/sdk";
import { type Answer, POOL } from "./jobs-scene.ts";

/** What became of a job, as its submitter saw it. */
export interface Ended {
  result: Pick<JobResult, "job_id" | "outcome" | "attempt_id">;
  tookMs: number;
}

export interface JobLoad {
  readonly submitted: number;
  readonly open: number;
  /** Stops submitting and waits for every answer. */
  finish(): Promise<Ended[]>;
}

/**
 * Submits at a rate until told to stop. Every job must be answered: by its result or by how it failed. An answer that
 * is neither means that the job was lost, and that ends the proof.
 */
export function startLoad(
  sessions: readonly Session[],
  { perSecond, workMs, pool = POOL }: { perSecond: number; workMs: number; pool?: string },
): JobLoad {
  const stopping = new AbortController();
  const jobs: Promise<Ended>[] = [];
  let open = 0;

  async function submit(n: number): Promise<Ended> {
    const startedMs = performance.now();
    const say = `job ${n}`;
    const payload = { say, work_ms: workMs };
    open += 1;
    try {
      const result = await sessions[n % sessions.length]!.submit<Answer>({ pool, payload });
      assert.equal(result.body.say, say, "the answer belongs to the question");
      return { result, tookMs: performance.now() - startedMs };
    } catch (error) {
      if (!(error instanceof JobFailed) || !error.result)
        throw new Error(`${say} was lost: ${error}`, { cause: error });
      return { result: error.result, tookMs: performance.now() - startedMs };
    } finally {
      open -= 1;
    }
  }

  const submitting = (async () => {
    const startedMs = performance.now();
    while (!stopping.signal.aborted) {
      const due = ((performance.now() - startedMs) / 1_000) * perSecond;
      while (jobs.length < due) {
        const job = submit(jobs.length);
        job.catch(() => {});
        jobs.push(job);
      }
      await wait(10);
    }
  })();

  return {
    get submitted() {
      return jobs.length;
    },
    get open() {
      return open;
    },
    async finish() {
      stopping.abort();
      await submitting;
      return Promise.all(jobs);
    },
  };
}

export function outcomesOf(ended: readonly Ended[]): string {
  const counts = new Map<string, number>();
  for (const { result } of ended) counts.set(result.outcome, (counts.get(result.outcome) ?? 0) + 1);
  return [...counts].map(([outcome, count]) => `${count} ${outcome}`).join(", ");
}

/** Those that did not succeed, for who must name each of them. */
export const unlucky = (ended: readonly Ended[]): Ended[] =>
  ended.filter(({ result }) => result.outcome !== "succeeded");

export const slowest = (ended: readonly Ended[]): number =>
  Math.round(ended.reduce((slowestMs, { tookMs }) => Math.max(slowestMs, tookMs), 0));
