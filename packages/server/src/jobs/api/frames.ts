import type { JobState } from "@tenure/protocol";
import type { JobEnd, TrackedJob } from "../job.ts";

/**
 * Messages about jobs as the text of their frame. Payloads and results are JSON already and are inserted unchanged: only the
 * client or node that needs them parses them.
 */

type Assigned = Pick<
  TrackedJob,
  "jobId" | "attemptId" | "requestId" | "sessionId" | "turnId" | "pool" | "runTimeoutMs" | "traceId"
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
    timeout_ms: job.runTimeoutMs,
    trace_id: job.traceId,
  });
  return `${head.slice(0, -1)},"payload":${payload}}`;
}

export function resultFrame(end: JobEnd): string {
  const head = JSON.stringify({
    type: "job_result",
    request_id: end.requestId,
    job_id: end.jobId,
    attempt_id: end.attemptId,
    node_id: end.nodeId,
    turn_id: end.turnId,
    success: end.outcome === "succeeded" && !end.isEvicted,
    outcome: end.outcome,
  });
  return withMembers(head, end.result);
}

/** Merges the members of two JSON objects. `head` has at least one. */
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

export const acceptedFrame = (
  {
    requestId,
    jobId,
    turnId,
  }: Pick<TrackedJob, "requestId" | "jobId"> & {
    turnId?: string | undefined;
  },
  { duplicate }: { duplicate: boolean },
): string =>
  JSON.stringify({
    type: "job_accepted",
    request_id: requestId,
    job_id: jobId,
    turn_id: turnId,
    duplicate,
  });
