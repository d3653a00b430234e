import { cutText, type JobError, type JobRetry, TenureError } from "@tenure/protocol";
import type { JobSpec, RetryPauses, TrackedJob } from "../job.ts";

/** Why an attempt ended and the job is tried again. */
export const RETRY_REASONS = [
  "ack_timeout",
  "run_timeout",
  "node_lost",
  "node_draining",
  "failed",
  "model_not_available",
  "inbox_full",
  "instance_lost",
] as const;
export type RetryReason = (typeof RETRY_REASONS)[number];

/** `last_reason` of a record. `node_lost_early`: the node was lost before it accepted the job. */
export type LastReason = RetryReason | "node_lost_early";

/** Attempts that end for the server's or the operator's reasons do not count against the job. */
const UNCOUNTED: ReadonlySet<RetryReason> = new Set([
  "node_draining",
  "inbox_full",
  "instance_lost",
]);

/** Written at the start of `last_failure`. Release 0.1.0 knows suspects by this text, so it must not change. */
export const NODE_LOST_TEXT = "its node was lost";

const TEXTS: Record<RetryReason, string> = {
  ack_timeout: "the node did not acknowledge it in time",
  run_timeout: "it did not end in time",
  node_lost: NODE_LOST_TEXT,
  node_draining: "its node is draining",
  failed: "it failed",
  model_not_available: "its node cannot serve its service now",
  inbox_full: "the inbox of its node's instance is full",
  instance_lost: "its instance was lost",
};

/** The reason as text, for timelines and errors. */
export const reasonText = (reason: RetryReason, detail: string): string =>
  detail === "" ? TEXTS[reason] : `${TEXTS[reason]}: ${detail}`;

/** A node that is lost before it accepts a job was not lost because of the job, unless it starts jobs in silence. */
export const isNodeLostByJob = ({ state, takenBy }: TrackedJob, reason: RetryReason): boolean =>
  reason === "node_lost" && (state !== "DISPATCHED" || takenBy !== undefined);

/** Whether an attempt that ends for this reason counts against `attemptsMax`. */
export const isCounted = (job: TrackedJob, reason: RetryReason): boolean =>
  reason === "node_lost" ? isNodeLostByJob(job, reason) : !UNCOUNTED.has(reason);

/** Bounds counted and uncounted attempts together, so that every job ends. */
export const attemptsInAllMax = ({ attemptsMax }: { attemptsMax: number }): number =>
  attemptsMax + 10;

/**
 * How long a request stays bound if its job is never released: as long as the slowest job can take, plus the retention. The
 * release of the job corrects it (`keepBinding`).
 */
export function bindingTtlMs(
  spec: Pick<JobSpec, "pendingTimeoutMs" | "ackTimeoutMs" | "runTimeoutMs" | "attemptsMax">,
  { retentionMs }: { retentionMs: number },
): number {
  const attemptMs = spec.pendingTimeoutMs + spec.ackTimeoutMs + 2 * spec.runTimeoutMs;
  return retentionMs + attemptsInAllMax(spec) * attemptMs;
}

/** The step that ends an attempt after a failure: another attempt, or the end of the job. */
export type FailureStep =
  | {
      event: "reassign";
      reason: string;
      code: LastReason;
      counts: boolean;
      avoid: boolean;
      lost: boolean;
    }
  | { event: "give_up"; outcome: "attempts_exhausted" | "timed_out"; error: JobError };

/** Decides between another attempt and the end of the job. `job.countedAttempts` is up to date. */
export function afterFailure(job: TrackedJob, reason: RetryReason, detail: string): FailureStep {
  const counts = isCounted(job, reason);
  const attempts = job.countedAttempts + (counts ? 1 : 0);
  const isLastInAll = job.attemptId >= attemptsInAllMax(job);
  if (attempts < job.attemptsMax && !isLastInAll)
    return {
      event: "reassign",
      reason: reasonText(reason, detail),
      code: reason === "node_lost" && !isNodeLostByJob(job, reason) ? "node_lost_early" : reason,
      counts,
      avoid: true,
      lost: reason === "node_lost",
    };
  if (reason === "run_timeout") {
    const timeout = new TenureError("JOB_TIMEOUT", { job_id: job.jobId });
    return { event: "give_up", outcome: "timed_out", error: jobError(timeout) };
  }
  const exhausted = new TenureError("ATTEMPTS_EXHAUSTED", {
    job_id: job.jobId,
    attempts: isLastInAll ? job.attemptId : attempts,
  });
  const error = jobError(exhausted, reasonText(reason, detail));
  return { event: "give_up", outcome: "attempts_exhausted", error };
}

const RETRY_BACK_OFF_MAX_MS = 3_600_000;

/** The pauses that a caller asked for. */
export const retryPausesOf = (retry: JobRetry | undefined): RetryPauses | undefined =>
  retry?.backoff_ms === undefined
    ? undefined
    : {
        backOffMs: retry.backoff_ms,
        backOffMaxMs: retry.backoff_max_ms ?? RETRY_BACK_OFF_MAX_MS,
        factor: retry.factor ?? 2,
      };

/** The pause after so many attempts that count. With jitter (`fraction`, from 0 to 1): from half of it to all of it. */
export function retryPauseMs(
  retry: RetryPauses | undefined,
  countedAttempts: number,
  fraction: number,
): number {
  if (!retry || countedAttempts === 0) return 0;
  const ms = Math.min(retry.backOffMs * retry.factor ** (countedAttempts - 1), retry.backOffMaxMs);
  return Math.round(ms * (0.5 + fraction / 2));
}

const BACK_OFF_MS = 100;
const BACK_OFF_MS_MAX = 2_000;

/**
 * The back-off before the next attempt. The first uncounted attempt is repeated at once, the others later each time:
 * without a back-off a job on nodes that cannot be reached used up all its attempts in 80 ms.
 */
export function backOffMs({ attemptId, countedAttempts }: TrackedJob): number {
  const uncounted = attemptId - 1 - countedAttempts;
  if (uncounted <= 1) return 0;
  return Math.min(BACK_OFF_MS * 2 ** (uncounted - 2), BACK_OFF_MS_MAX);
}

export const jobError = (error: TenureError, detail = ""): JobError => ({
  code: error.code,
  message: detail === "" ? error.message : cutText(`${error.message} (${detail})`, 4_096),
});
