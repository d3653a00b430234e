import { type JobError, type JobOutcome, type JobState, TenureError } from "@tenure/protocol";
import type { LiveJob } from "../memory/tracked-jobs.ts";

/**
 * Messages about jobs as the text of their frame. Payloads and results are JSON already: they are put in as they
 * are, parsed by the one who needs them and by nobody on the way.
 */

/** What a job came to, as its record keeps it: `{"body":…,"error":{"code","message"}}`, each if there is one. */
export function resultText({
  body,
  error,
}: {
  body?: string | undefined;
  error?: JobError | undefined;
}): string {
  const parts: string[] = [];
  if (body !== undefined) parts.push(`"body":${body}`);
  if (error) parts.push(`"error":${JSON.stringify({ code: error.code, message: error.message })}`);
  return `{${parts.join()}}`;
}

/** Instead of the result of an ended job that was dropped to make room (flow/retention.ts). */
export function evictedError(jobId: string, outcome: JobOutcome): JobError {
  const { code, message } = new TenureError("RESULT_EVICTED", { job_id: jobId, outcome });
  return { code, message };
}

type Assigned = Pick<
  LiveJob,
  "jobId" | "attemptId" | "requestId" | "sessionId" | "turnId" | "pool" | "timeoutMs" | "traceId"
>;

export function assignText(job: Assigned, payload: string): string {
  const head = JSON.stringify({
    type: "job_assign",
    job_id: job.jobId,
    attempt_id: job.attemptId,
    request_id: job.requestId,
    session_id: job.sessionId,
    turn_id: job.turnId,
    pool: job.pool,
    timeout_ms: job.timeoutMs,
    trace_id: job.traceId,
  });
  return `${head.slice(0, -1)},"payload":${payload}}`;
}

/** How a job ended: what its session, or whoever asked for it, is told. */
export interface Ending {
  jobId: string;
  requestId: string;
  turnId?: string | undefined;
  attemptId: number;
  nodeId?: string | undefined;
  outcome: JobOutcome;
  /** As `resultText` made it. */
  result: string;
  /** The result was dropped before its time; `result` says so. */
  isEvicted?: boolean;
}

/** How an attempt ended its job, for whoever has the job in hand. */
export interface JobEnd {
  outcome: JobOutcome;
  attemptId: number;
  nodeId: string | undefined;
  /** As `resultText` made it. */
  result: string;
  /** Instances where somebody else waits for it. */
  listeners: readonly string[];
}

export function resultFrame(ending: Ending): string {
  const head = JSON.stringify({
    type: "job_result",
    request_id: ending.requestId,
    job_id: ending.jobId,
    attempt_id: ending.attemptId,
    node_id: ending.nodeId,
    turn_id: ending.turnId,
    success: ending.outcome === "succeeded" && !ending.isEvicted,
    outcome: ending.outcome,
  });
  return withMembers(head, ending.result);
}

/** The members of two objects in one, both as JSON. `head` has at least one. */
export function withMembers(head: string, more: string): string {
  const members = more.slice(1, -1);
  return members === "" ? head : `${head.slice(0, -1)},${members}}`;
}

export const updateFrame = (update: {
  jobId: string;
  state: JobState;
  attemptId: number;
  nodeId?: string | undefined;
}): string =>
  JSON.stringify({
    type: "job_update",
    job_id: update.jobId,
    state: update.state,
    attempt_id: update.attemptId,
    node_id: update.nodeId,
  });

export const progressFrame = (progress: {
  jobId: string;
  attemptId: number;
  /** JSON. */
  body: string;
}): string => {
  const head = { type: "job_progress", job_id: progress.jobId, attempt_id: progress.attemptId };
  return withMembers(JSON.stringify(head), `{"body":${progress.body}}`);
};
