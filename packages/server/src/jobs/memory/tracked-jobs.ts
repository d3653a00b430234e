import type { AffinityOutcome, FinalizeReason, JobState } from "@tenure/protocol";
import type { JobRecord } from "../store/job-codec.ts";
import type { Waiter } from "./wait-queue.ts";

/**
 * A job this instance has in hand: it waits here, or it is on a node connected here. What is in the record decides;
 * this is what was read or written last, so that the common way needs no reading.
 */
export interface LiveJob extends Waiter {
  readonly tenant: string;
  readonly token: string | undefined;
  readonly requestId: string;
  readonly service: string | undefined;
  /** How long it may wait for a node, a node may take to accept it, and it may run then. */
  readonly pendingTimeoutMs: number;
  readonly ackTimeoutMs: number;
  readonly timeoutMs: number;
  readonly attemptsMax: number;
  /** The instance that took it in. */
  readonly originInstanceId: string;
  readonly traceId: string | undefined;
  readonly sessionId: string | undefined;
  turnId: string | undefined;
  /** Set on the job that closes its turn. */
  finalize: FinalizeReason | undefined;
  /** As JSON. Absent when it was too large to keep while the job waits: it is read again. */
  payload: string | undefined;
  /** Its length in bytes, also while it is not kept here. */
  readonly payloadBytes: number;
  state: JobState;
  attemptId: number;
  /** Attempts that ended and count against `attempts_max`. */
  countedAttempts: number;
  nodeId: string | undefined;
  /** Nodes of former attempts. */
  former: Set<string>;
  /** Whether it went to the node of its turn, or why not. */
  affinity: AffinityOutcome;
  /** By this process' monotonic clock: when this instance took the job in hand, and when this attempt began to wait. */
  readonly sinceMs: number;
  attemptSinceMs: number;
  need: string;
  /** Why the attempt before this one ended. */
  lastReason: string | undefined;
  /** It has lost a node. It may have been the cause. */
  isSuspect: boolean;
}

/** The jobs in hand, by id. */
export interface Book {
  get(jobId: string): LiveJob | undefined;
  add(job: LiveJob): void;
  /** `false`: it was not in hand, or another turn of it is by now. */
  drop(job: LiveJob): boolean;
  openOf(tenant: string): number;
  /** Bytes of the payloads of its jobs. */
  payloadBytesOf(tenant: string): number;
  size(): number;
  values(): Iterable<LiveJob>;
}

export function createBook(): Book {
  const jobs = new Map<string, LiveJob>();
  const tenants = new Map<string, { open: number; payloadBytes: number }>();

  function count({ tenant, payloadBytes }: LiveJob, change: 1 | -1): void {
    const now = tenants.get(tenant) ?? { open: 0, payloadBytes: 0 };
    now.open += change;
    now.payloadBytes += change * payloadBytes;
    if (now.open === 0) tenants.delete(tenant);
    else tenants.set(tenant, now);
  }

  return {
    get: (jobId) => jobs.get(jobId),
    add(job) {
      const former = jobs.get(job.jobId);
      if (former) count(former, -1);
      jobs.set(job.jobId, job);
      count(job, 1);
    },
    drop(job) {
      if (jobs.get(job.jobId) !== job) return false;
      jobs.delete(job.jobId);
      count(job, -1);
      return true;
    },
    openOf: (tenant) => tenants.get(tenant)?.open ?? 0,
    payloadBytesOf: (tenant) => tenants.get(tenant)?.payloadBytes ?? 0,
    size: () => jobs.size,
    values: () => jobs.values(),
  };
}

/** An attempt on a node. */
export interface Place {
  attemptId: number;
  nodeId: string;
}

/** Whether a message of an attempt on a node is about what this job does now. */
export const isAt = <Job extends { attemptId: number; nodeId?: string | undefined }>(
  job: Job | undefined,
  { attemptId, nodeId }: Place,
): job is Job => job !== undefined && job.attemptId === attemptId && job.nodeId === nodeId;

/** What a job needs besides its pool, as one word. */
export const needOf = (
  service: string | undefined,
  { isSuspect = false, turnId }: { isSuspect?: boolean; turnId?: string | undefined } = {},
): string => `${service ?? ""}${isSuspect ? " alone" : ""}${turnId ? ` in ${turnId}` : ""}`;

/** The beginning of what a timeline says of an attempt whose node was lost. */
export const NODE_LOST_WORDS = "its node was lost";

/** A job taken over from its record: from an instance that is gone, or because its node connected here. */
export function liveJobOf(
  record: JobRecord,
  { nowMs, storeNowMs }: { nowMs: number; storeNowMs: number },
): LiveJob {
  return {
    jobId: record.jobId,
    tenant: record.tenant,
    token: record.token,
    requestId: record.requestId,
    pool: record.pool,
    service: record.service,
    priority: record.priority,
    pendingTimeoutMs: record.pendingTimeoutMs,
    ackTimeoutMs: record.ackTimeoutMs,
    timeoutMs: record.runTimeoutMs,
    attemptsMax: record.attemptsMax,
    originInstanceId: record.originInstanceId,
    traceId: record.traceId,
    sessionId: record.sessionId,
    turnId: record.turnId,
    finalize: record.finalize,
    payload: record.payload,
    payloadBytes: Buffer.byteLength(record.payload ?? ""),
    state: record.state,
    attemptId: record.attemptId,
    countedAttempts: record.countedAttempts,
    nodeId: record.nodeId,
    former: new Set(record.avoid),
    affinity: record.affinity ?? "no_turn",
    createdAtMs: record.createdMs,
    sinceMs: nowMs,
    attemptSinceMs: nowMs - Math.max(0, storeNowMs - record.attemptMs),
    need: needOf(record.service, { isSuspect: isSuspect(record), turnId: record.turnId }),
    lastReason: record.lastFailure,
    isSuspect: isSuspect(record),
  };
}

const isSuspect = ({ lastFailure }: JobRecord): boolean =>
  lastFailure?.startsWith(NODE_LOST_WORDS) ?? false;

/** How long after `stateMs` somebody has to act on a job that is in this state; `undefined` when nobody has. */
export function stateLimitMs(
  job: Pick<JobRecord, "state" | "pendingTimeoutMs" | "ackTimeoutMs" | "runTimeoutMs">,
): number | undefined {
  switch (job.state) {
    case "CREATED":
      return job.pendingTimeoutMs;
    case "DISPATCHED":
      return job.ackTimeoutMs;
    case "ACCEPTED":
    case "RUNNING":
      return job.runTimeoutMs;
    default:
      return undefined;
  }
}
