import type {
  AffinityOutcome,
  FinalizeReason,
  JobError,
  JobOutcome,
  JobState,
  JobTimelineEntry,
} from "@tenure/protocol";
import { TenureError } from "@tenure/protocol";
import type { JobView } from "./policy/job-table.ts";

/** What the client asked for, and the limits of each step. Written once, when the job is created. */
export interface JobSpec {
  jobId: string;
  tenant: string;
  /** Name of the token that submitted the job. Absent from jobs that an instance of 0.1 created. */
  token?: string | undefined;
  requestId: string;
  /** Hash of everything the client asked for: the same request id with another hash is `REQUEST_ID_REUSED`. */
  bodyHash: string;
  pool: string;
  service?: string | undefined;
  priority: number;
  traceId?: string | undefined;
  sessionId?: string | undefined;
  /** The job belongs to the current turn of its session. `turnId` is set when the job has joined it. */
  turn: boolean;
  /** Set on the job that closes its turn. */
  finalize?: FinalizeReason | undefined;
  /** The instance that accepted the job; an HTTP caller waits there. */
  originInstanceId: string;
  /** Limits: waiting for a node, waiting for the node's acknowledgement, running. */
  pendingTimeoutMs: number;
  ackTimeoutMs: number;
  runTimeoutMs: number;
  attemptsMax: number;
  /** The job has a row, which decides that it exists, which attempt is current and how it ended. */
  durable?: boolean | undefined;
  retry?: RetryPauses | undefined;
}

/** The pauses between the attempts that failed. */
export interface RetryPauses {
  backOffMs: number;
  backOffMaxMs: number;
  factor: number;
}

/** The record of a job in the store. Times are the store's. */
export interface JobRecord extends JobSpec, JobView {
  turnId?: string | undefined;
  createdMs: number;
  /** When this attempt began to wait for a node. */
  attemptMs: number;
  /** When the job entered its state. */
  stateMs: number;
  /** False until the job has won its request id: such a record expires. */
  persisted: boolean;
  /** Instances to notify when the job ends. */
  listeners: string[];
  affinity?: AffinityOutcome | undefined;
  /** Why the attempt before this one ended, as text for the timeline. */
  lastFailure?: string | undefined;
  /** The job may have caused the loss of its last node. */
  isSuspect: boolean;
  /** The boot id of the process that took this attempt without a word. */
  takenBy?: string | undefined;
  /** Nodes of earlier attempts, newest first. */
  avoid: string[];
  /** JSON texts, if requested and present. */
  payload?: string | undefined;
  result?: string | undefined;
  /** Oldest first; empty unless requested. */
  timeline: JobTimelineEntry[];
}

/**
 * A job this instance tracks: it waits here, or it runs on a node connected here. The record decides; this is the state that
 * was read or written last, so that the common path needs no read.
 */
export interface TrackedJob extends JobSpec {
  turnId: string | undefined;
  /** JSON. Absent if it was too large to keep while the job waits; then it is read again. */
  payload: string | undefined;
  /** Length of the payload in bytes, also while it is not kept here. */
  readonly payloadBytes: number;
  state: JobState;
  attemptId: number;
  /** Attempts that ended and count against `attemptsMax`. */
  countedAttempts: number;
  nodeId: string | undefined;
  /** Nodes of earlier attempts. */
  former: Set<string>;
  /** Whether the job went to the node of its turn, or why not. */
  affinity: AffinityOutcome;
  /** When the job was submitted, by the store's clock. A job that is retried keeps its age. */
  readonly createdMs: number;
  /** By the monotonic clock: when this instance began to track the job, and when this attempt began to wait. */
  readonly sinceMs: number;
  attemptSinceMs: number;
  /** What the job needs besides its pool; see `needOf`. */
  need: string;
  /** The job may have caused the loss of its last node. */
  isSuspect: boolean;
  /**
   * The process that takes this attempt without a word, because its node starts short jobs in silence. From the write of
   * `job_assign` the attempt counts as started: the process may have run it, and be lost by it.
   */
  takenBy: string | undefined;
}

/** How a job ended. */
export interface JobEnd {
  jobId: string;
  tenant: string;
  requestId: string;
  turnId?: string | undefined;
  sessionId?: string | undefined;
  originInstanceId: string;
  attemptId: number;
  nodeId?: string | undefined;
  outcome: JobOutcome;
  /** JSON, written by `resultText`. */
  result: string;
  /** The result was dropped to make room, and `result` is an error instead. */
  isEvicted: boolean;
  /** Instances to notify. */
  listeners: readonly string[];
}

/** The part of a job's end that its last attempt decides. */
export type AttemptEnd = Pick<JobEnd, "outcome" | "attemptId" | "nodeId" | "result" | "listeners">;

export interface JobAttempt {
  jobId: string;
  attemptId: number;
}

/** An attempt on a node. */
export interface AttemptPlace {
  attemptId: number;
  nodeId: string;
}

/** Whether the job is at this attempt and on this node. */
export const isAt = <Job extends { attemptId: number; nodeId?: string | undefined }>(
  job: Job | undefined,
  { attemptId, nodeId }: AttemptPlace,
): job is Job => job !== undefined && job.attemptId === attemptId && job.nodeId === nodeId;

/** What a job needs besides its pool, as one word: jobs with the same need wait in one line. */
export const needOf = (
  service: string | undefined,
  { isSuspect = false, turnId }: { isSuspect?: boolean; turnId?: string | undefined } = {},
): string => `${service ?? ""}${isSuspect ? " alone" : ""}${turnId ? ` in ${turnId}` : ""}`;

/** A job that this instance has just created. */
export const newTrackedJob = (
  spec: JobSpec,
  { payload, createdMs, nowMs }: { payload: string; createdMs: number; nowMs: number },
): TrackedJob =>
  trackedJob(spec, {
    turnId: undefined,
    payload,
    state: "CREATED",
    attemptId: 1,
    countedAttempts: 0,
    nodeId: undefined,
    former: new Set(),
    affinity: "no_turn",
    createdMs,
    sinceMs: nowMs,
    attemptSinceMs: nowMs,
    isSuspect: false,
    takenBy: undefined,
  });

/** A job from its record: its instance is lost, its node connected here, or only this call needs it. */
export const trackedJobOf = (
  record: JobRecord,
  { nowMs, storeNowMs }: { nowMs: number; storeNowMs: number },
): TrackedJob =>
  trackedJob(record, {
    turnId: record.turnId,
    payload: record.payload,
    state: record.state,
    attemptId: record.attemptId,
    countedAttempts: record.countedAttempts,
    nodeId: record.nodeId,
    former: new Set(record.avoid),
    affinity: record.affinity ?? "no_turn",
    createdMs: record.createdMs,
    sinceMs: nowMs,
    attemptSinceMs: nowMs - Math.max(0, storeNowMs - record.attemptMs),
    isSuspect: record.isSuspect,
    takenBy: record.takenBy,
  });

/** Field by field: V8 keeps an object of this size that is made by spreading as a dictionary, which costs 14 µs a job. */
function trackedJob(
  spec: JobSpec,
  at: Omit<TrackedJob, keyof JobSpec | "payloadBytes" | "need">,
): TrackedJob {
  return {
    jobId: spec.jobId,
    tenant: spec.tenant,
    token: spec.token,
    requestId: spec.requestId,
    bodyHash: spec.bodyHash,
    pool: spec.pool,
    service: spec.service,
    priority: spec.priority,
    traceId: spec.traceId,
    sessionId: spec.sessionId,
    turn: spec.turn,
    finalize: spec.finalize,
    originInstanceId: spec.originInstanceId,
    pendingTimeoutMs: spec.pendingTimeoutMs,
    ackTimeoutMs: spec.ackTimeoutMs,
    runTimeoutMs: spec.runTimeoutMs,
    attemptsMax: spec.attemptsMax,
    durable: spec.durable,
    retry: spec.retry,
    turnId: at.turnId,
    payload: at.payload,
    payloadBytes: Buffer.byteLength(at.payload ?? ""),
    state: at.state,
    attemptId: at.attemptId,
    countedAttempts: at.countedAttempts,
    nodeId: at.nodeId,
    former: at.former,
    affinity: at.affinity,
    createdMs: at.createdMs,
    sinceMs: at.sinceMs,
    attemptSinceMs: at.attemptSinceMs,
    need: needOf(spec.service, at),
    isSuspect: at.isSuspect,
    takenBy: at.takenBy,
  };
}

/** The end of a tracked job by this attempt. */
export const jobEndOf = (
  { jobId, tenant, requestId, turnId, sessionId, originInstanceId }: TrackedJob,
  { outcome, attemptId, nodeId, result, listeners }: AttemptEnd,
): JobEnd => ({
  jobId,
  tenant,
  requestId,
  turnId,
  sessionId,
  originInstanceId,
  attemptId,
  nodeId,
  outcome,
  result,
  isEvicted: false,
  listeners,
});

/** The end of a job from its record, which was read with its result. */
export const recordedEnd = (record: JobRecord, outcome: JobOutcome): JobEnd => ({
  jobId: record.jobId,
  tenant: record.tenant,
  requestId: record.requestId,
  turnId: record.turnId,
  sessionId: record.sessionId,
  originInstanceId: record.originInstanceId,
  attemptId: record.attemptId,
  nodeId: record.nodeId,
  outcome,
  result: record.result ?? resultText({ error: evictedError(record.jobId, outcome) }),
  isEvicted: record.result === undefined,
  listeners: record.listeners,
});

/** A result as the record keeps it: `{"body":…,"error":{"code","message"}}`, each member only if there is one. */
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

/** Stands for a result that was dropped to make room (`flow/retention.ts`). */
export function evictedError(jobId: string, outcome: JobOutcome): JobError {
  const { code, message } = new TenureError("RESULT_EVICTED", { job_id: jobId, outcome });
  return { code, message };
}

/** How long a job may stay in its state before an instance has to act; `undefined` for a job that has ended. */
export function stateLimitMs(
  job: Pick<JobRecord, "state" | "pendingTimeoutMs" | "ackTimeoutMs" | "runTimeoutMs" | "takenBy">,
): number | undefined {
  switch (job.state) {
    case "CREATED":
      return job.pendingTimeoutMs;
    case "DISPATCHED":
      // A process that took it in silence reports it at the latest with its result.
      return job.ackTimeoutMs + (job.takenBy === undefined ? 0 : job.runTimeoutMs);
    case "ACCEPTED":
    case "RUNNING":
      return job.runTimeoutMs;
    default:
      return undefined;
  }
}
