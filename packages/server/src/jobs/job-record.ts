import type {
  AffinityOutcome,
  FinalizeReason,
  JobOutcome,
  JobState,
  JobTimelineEntry,
} from "@tenure/protocol";
import type { JobView } from "./fsm.ts";

/** What is asked for, and how long each step of it may take. Written once. */
export interface JobSpecRecord {
  jobId: string;
  tenant: string;
  requestId: string;
  /** Of everything the client asked for: the same request id with another hash is `REQUEST_ID_REUSED`. */
  bodyHash: string;
  pool: string;
  service?: string | undefined;
  priority: number;
  traceId?: string | undefined;
  sessionId?: string | undefined;
  /** It belongs to its session's current turn; which one that is, `turnId` says once it has joined. */
  turn: boolean;
  turnId?: string | undefined;
  finalize?: FinalizeReason | undefined;
  /** The instance that took it in; where an HTTP caller waits. */
  originInstanceId: string;
  pendingTimeoutMs: number;
  ackTimeoutMs: number;
  runTimeoutMs: number;
  attemptsMax: number;
}

/** A job's record with everything a step needs to know. Times are the store's. */
export interface JobRecord extends JobSpecRecord, JobView {
  createdMs: number;
  /** When this attempt began to wait for a node. */
  attemptMs: number;
  /** When it came into its state. */
  stateMs: number;
  /** Kept for good. Before that its request may be bound to another job, and it runs out by itself. */
  persisted: boolean;
  /** Instances where somebody waits for its end. */
  listeners: string[];
  affinity?: AffinityOutcome | undefined;
  /** Why the attempt before this one ended. */
  lastFailure?: string | undefined;
  /** Nodes of former attempts, newest first: others are better. */
  avoid: string[];
  /** JSON texts, when asked for and there. */
  payload?: string | undefined;
  result?: string | undefined;
  /** Oldest first; empty unless asked for. */
  timeline: JobTimelineEntry[];
}

/** The fields of a new record, one after the other as HSET takes them. What is absent costs nothing. */
export function specFields(job: JobSpecRecord): string[] {
  const fields: Record<string, string | number | undefined> = {
    v: 1,
    session_id: job.sessionId,
    tenant: job.tenant,
    request_id: job.requestId,
    body_hash: job.bodyHash,
    pool: job.pool,
    service: job.service,
    priority: job.priority,
    trace_id: job.traceId,
    turn: job.turn ? 1 : undefined,
    turn_id: job.turnId,
    finalize: job.finalize,
    origin: job.originInstanceId,
    pending_timeout_ms: job.pendingTimeoutMs,
    ack_timeout_ms: job.ackTimeoutMs,
    run_timeout_ms: job.runTimeoutMs,
    attempts_max: job.attemptsMax,
  };
  return Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [name, String(value)],
  );
}

export type Fields = ReadonlyMap<string, string>;

/** Of a record in memory, what decides. */
export function viewOf(fields: Fields): JobView {
  return {
    state: fields.get("state") as JobState,
    attemptId: Number(fields.get("attempt_id")),
    nodeId: fields.get("node_id") || undefined,
    endedBy: fields.get("ended_by") as JobView["endedBy"],
    outcome: fields.get("outcome") as JobOutcome | undefined,
    countedAttempts: Number(fields.get("counted_attempts")),
    attemptsMax: Number(fields.get("attempts_max")),
  };
}

/** Texts beside the record, as the store has them; an absent text is ''. */
export interface JobParts {
  payload: string;
  result: string;
  entries: readonly string[];
}

export function recordOf(jobId: string, fields: Fields, parts: JobParts): JobRecord {
  const number = (name: string) => Number(fields.get(name));
  return {
    ...viewOf(fields),
    jobId,
    tenant: fields.get("tenant")!,
    requestId: fields.get("request_id")!,
    bodyHash: fields.get("body_hash")!,
    pool: fields.get("pool")!,
    service: fields.get("service"),
    priority: number("priority"),
    traceId: fields.get("trace_id"),
    sessionId: fields.get("session_id"),
    turn: fields.has("turn"),
    turnId: fields.get("turn_id"),
    finalize: fields.get("finalize") as FinalizeReason | undefined,
    originInstanceId: fields.get("origin")!,
    pendingTimeoutMs: number("pending_timeout_ms"),
    ackTimeoutMs: number("ack_timeout_ms"),
    runTimeoutMs: number("run_timeout_ms"),
    createdMs: number("created_ms"),
    attemptMs: number("attempt_ms"),
    stateMs: number("state_ms"),
    persisted: fields.has("persisted"),
    listeners: wordsOf(fields.get("listeners")),
    affinity: fields.get("affinity") as AffinityOutcome | undefined,
    lastFailure: fields.get("last_failure"),
    avoid: wordsOf(fields.get("avoid")),
    payload: parts.payload || undefined,
    result: parts.result || undefined,
    timeline: parts.entries.map(parseEntry),
  };
}

/** Older entries of a job's timeline go first. A dozen attempts that each went all the way fit. */
export const TIMELINE_MAX = 64;

/** How every job begins. It is not written down: the record says as much. */
export function firstEntry({ createdMs, originInstanceId }: JobRecord): JobTimelineEntry {
  return {
    at: new Date(createdMs).toISOString(),
    state: "CREATED",
    attempt_id: 1,
    instance_id: originInstanceId,
  };
}

/** A space stands behind each word. What has none was cut at the end of the list. */
export const wordsOf = (text: string | undefined): string[] => (text ?? "").split(" ").slice(0, -1);

/** `at|state|attempt|node|instance|reason`. The reason comes last: it alone may contain the separator. */
function parseEntry(text: string): JobTimelineEntry {
  const [atMs, state, attemptId, nodeId, instanceId, ...reason] = text.split("|");
  return {
    at: new Date(Number(atMs)).toISOString(),
    state: state as JobState,
    attempt_id: Number(attemptId),
    ...(nodeId && { node_id: nodeId }),
    ...(instanceId && { instance_id: instanceId }),
    ...(reason.some(Boolean) && { reason: reason.join("|") }),
  };
}
