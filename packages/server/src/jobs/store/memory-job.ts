import type { AffinityOutcome, JobState, JobTimelineEntry } from "@tenure/protocol";
import type { MemorySpace } from "../../store/memory-space.ts";
import type { JobRecord, JobSpec } from "../job.ts";
import type { JobView } from "../policy/job-table.ts";
import {
  affinityOf,
  isSuspectOf,
  TIMELINE_MAX,
  takenByOf,
  withEnds,
  wordsOf,
} from "./job-codec.ts";

/** A record of the store in memory: one object under the key `fsm`, with its texts. Nothing of it is written or parsed again. */
export interface MemoryJob extends JobView {
  readonly spec: JobSpec;
  readonly createdMs: number;
  turnId: string | undefined;
  attemptMs: number;
  stateMs: number;
  persisted: boolean;
  affinity: AffinityOutcome | undefined;
  lastFailure: string | undefined;
  lastReason: string | undefined;
  /** Words with a space after each, as in Redis. */
  listeners: string;
  avoid: string;
  lost: string;
  taken: string | undefined;
  /** JSON texts, as they came. */
  payload: string | undefined;
  result: string | undefined;
  timeline: TimelineNote[];
}

/** An entry of the timeline. */
interface TimelineNote {
  atMs: number;
  state: JobState;
  attemptId: number;
  nodeId: string | undefined;
  instanceId: string;
  reason: string;
}

/** Stands for a job that must never be created. */
const VOID = { void: true };

export const isVoid = (space: MemorySpace, fsm: string): boolean => space.record(fsm) === VOID;

export function jobIn(space: MemorySpace, fsm: string): MemoryJob | undefined {
  const record = space.record(fsm);
  return record === VOID ? undefined : (record as MemoryJob | undefined);
}

export function voidIn(space: MemorySpace, fsm: string, expiryMs: number): void {
  space.setRecord(fsm, VOID, expiryMs);
}

/** `spec` is kept, not copied. */
export const newMemoryJob = (spec: JobSpec, payload: string, nowMs: number): MemoryJob => ({
  spec,
  createdMs: nowMs,
  turnId: undefined,
  state: "CREATED",
  attemptId: 1,
  nodeId: undefined,
  endedBy: undefined,
  outcome: undefined,
  countedAttempts: 0,
  attemptsMax: spec.attemptsMax,
  attemptMs: nowMs,
  stateMs: nowMs,
  persisted: false,
  affinity: undefined,
  lastFailure: undefined,
  lastReason: undefined,
  listeners: "",
  avoid: "",
  lost: "",
  taken: undefined,
  payload,
  result: undefined,
  timeline: [],
});

/** A record that has advanced does not expire. */
export function persistIn(space: MemorySpace, fsm: string, job: MemoryJob): void {
  job.persisted = true;
  space.expire(fsm, Number.POSITIVE_INFINITY);
}

/** Field by field: V8 keeps a spread of this size as a dictionary. */
export const specOf = (job: JobSpec): JobSpec => ({
  jobId: job.jobId,
  tenant: job.tenant,
  token: job.token,
  requestId: job.requestId,
  bodyHash: job.bodyHash,
  pool: job.pool,
  service: job.service,
  priority: job.priority,
  traceId: job.traceId,
  sessionId: job.sessionId,
  turn: job.turn,
  finalize: job.finalize,
  originInstanceId: job.originInstanceId,
  pendingTimeoutMs: job.pendingTimeoutMs,
  ackTimeoutMs: job.ackTimeoutMs,
  runTimeoutMs: job.runTimeoutMs,
  attemptsMax: job.attemptsMax,
  durable: job.durable,
  retry: job.retry,
});

export interface MemoryParts {
  payload?: boolean;
  result?: boolean;
  failure?: boolean;
  timeline?: boolean;
}

/** A copy for the caller, with the texts it wants. */
export function recordIn(job: MemoryJob, wanted: MemoryParts, errorBytesMax: number): JobRecord {
  const record: JobRecord = {
    ...job.spec,
    turnId: job.turnId,
    state: job.state,
    attemptId: job.attemptId,
    nodeId: job.nodeId,
    endedBy: job.endedBy,
    outcome: job.outcome,
    countedAttempts: job.countedAttempts,
    createdMs: job.createdMs,
    attemptMs: job.attemptMs,
    stateMs: job.stateMs,
    persisted: job.persisted,
    listeners: wordsOf(job.listeners),
    affinity: affinityOf(job),
    lastFailure: job.lastFailure,
    isSuspect: isSuspectOf(job),
    takenBy: takenByOf(job),
    avoid: wordsOf(job.avoid),
    payload: wanted.payload ? job.payload : undefined,
    result: resultIn(job, wanted, errorBytesMax),
    timeline: [],
  };
  if (wanted.timeline) record.timeline = withEnds(record, job.timeline.map(entryOf));
  return record;
}

function resultIn(
  { result, outcome }: MemoryJob,
  wanted: MemoryParts,
  errorBytesMax: number,
): string | undefined {
  if (wanted.result) return result;
  const isError = wanted.failure && outcome && outcome !== "succeeded" && result !== undefined;
  return isError && Buffer.byteLength(result) <= errorBytesMax ? result : undefined;
}

export function noteIn({ timeline }: MemoryJob, note: TimelineNote): void {
  timeline.push(note);
  if (timeline.length > TIMELINE_MAX) timeline.shift();
}

const entryOf = (note: TimelineNote): JobTimelineEntry => ({
  at: new Date(note.atMs).toISOString(),
  state: note.state,
  attempt_id: note.attemptId,
  ...(note.nodeId && { node_id: note.nodeId }),
  ...(note.instanceId && { instance_id: note.instanceId }),
  ...(note.reason && { reason: note.reason }),
});
