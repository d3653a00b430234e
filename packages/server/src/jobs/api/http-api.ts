import { type Job, serves, TenureError, type TurnView } from "@tenure/protocol";
import type { ResultDelivery } from "../flow/result-delivery.ts";
import type { Submit, Submitted } from "../flow/submit.ts";
import type { TrackedJob } from "../job.ts";
import type { JobsParts } from "../parts.ts";
import type { DurableJobs } from "../rows/durable-jobs.ts";
import { readJob } from "../store/job-store.ts";
import type { Turns } from "../turns/turns.ts";
import type { Cancellation } from "./cancellation.ts";
import { createJobQueries, type JobFilter, jobText } from "./job-queries.ts";
import type { JobSpecText } from "./raw-json.ts";

/** Jobs for HTTP callers. Jobs are JSON, written by `jobText`. `token`: only jobs that the token of this name submitted. */
export interface HttpJobs {
  /** `ended`: within `waitMs`. `gone` ends the wait when the caller hangs up. */
  submit(
    spec: JobSpecText,
    by: { tenant: string; token?: string | undefined; waitMs: number; gone?: AbortSignal },
  ): Promise<{ job: string; ended: boolean }>;
  list(filter: JobFilter): Promise<{ items: Job[]; next_cursor: string | null }>;
  read(jobId: string, tenant: string, token?: string): Promise<string>;
  cancel(jobId: string, tenant: string, token?: string): Promise<string>;
  readTurn(turnId: string, tenant: string, token?: string): Promise<TurnView>;
}

const POLL_MS = 1_000;

export function createHttpJobs(
  { hot, clock }: Pick<JobsParts, "hot" | "clock">,
  {
    submit,
    results,
    turns,
    cancellation,
    durable,
    listenFor,
  }: {
    submit: Submit;
    results: ResultDelivery;
    turns: Turns;
    cancellation: Cancellation;
    durable: Pick<DurableJobs, "recordFromRow">;
    listenFor: (jobId: string) => Promise<void>;
  },
): HttpJobs {
  const queries = createJobQueries(hot, durable);

  async function isEnded(jobId: string): Promise<boolean> {
    const record = (await readJob(hot, jobId)) ?? (await durable.recordFromRow(jobId));
    return record?.outcome !== undefined;
  }

  /** Waits for the notification of the job's end, and polls in case it gets lost. */
  async function untilEnded(
    jobId: string,
    { waitMs, isOwn, gone }: { waitMs: number; isOwn: boolean; gone: AbortSignal | undefined },
  ): Promise<void> {
    if (gone?.aborted) return;
    const over = new AbortController();
    const end = () => over.abort();
    const unfollow = results.follow(jobId, end);
    gone?.addEventListener("abort", end, { once: true });
    if (!isOwn) listenFor(jobId).catch(() => {});
    const untilMs = clock.monotonicMs() + waitMs;
    try {
      while (!over.signal.aborted && !(await isEnded(jobId))) {
        const leftMs = untilMs - clock.monotonicMs();
        if (leftMs <= 0) return;
        await clock.sleep(Math.min(leftMs, POLL_MS), over.signal);
      }
    } finally {
      unfollow();
      gone?.removeEventListener("abort", end);
    }
  }

  return {
    ...queries,
    readTurn: (turnId, tenant, token) => turns.read(turnId, tenant, token),
    async submit(spec, { tenant, token, waitMs, gone }) {
      let submitted: Submitted | undefined;
      await submit.submit({ ...spec, tenant, token }, (answer) => {
        submitted = answer;
      });
      if (!submitted) throw new TenureError("INTERNAL", {});
      const isOwn = submitted.outcome === "accepted";
      const { jobId } = submitted.outcome === "accepted" ? submitted.job : submitted.record;
      if (waitMs > 0) await untilEnded(jobId, { waitMs, isOwn, gone });
      const record = await queries.find(jobId, tenant);
      return { job: jobText(record), ended: record.outcome !== undefined };
    },
    async cancel(jobId, tenant, token) {
      const isOwn = (job: TrackedJob) =>
        serves([tenant], job.tenant) && (token === undefined || job.token === token);
      await cancellation.cancel(jobId, isOwn);
      return queries.read(jobId, tenant);
    },
  };
}
