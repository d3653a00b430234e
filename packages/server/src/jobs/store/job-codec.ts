import type {
  AffinityOutcome,
  FinalizeReason,
  JobOutcome,
  JobState,
  JobTimelineEntry,
} from "@tenure/protocol";
import type { JobView } from "../policy/job-table.ts";

/** What is asked for, and how long each step of it may take. Written once. */
export interface JobSpecRecord {
  jobId: string;
  tenant: string;
  /** The name of the token that submitted it. Absent from jobs that an instance of 0.1 took in. */
  token?: string | undefined;
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

/** Where a job is, as the field `at` keeps it: words in a fixed order, `-` for none. */
interface JobAt {
  attemptId: number;
  countedAttempts: number;
  attemptsMax: number;
  persisted: boolean;
  nodeId: string | undefined;
  stateMs: number;
  attemptMs: number;
  endedBy: JobView["endedBy"];
  outcome: JobOutcome | undefined;
}

export function writeAt(at: JobAt): string {
  const ended = at.endedBy ? `${at.endedBy}:${at.outcome}` : "-";
  const persisted = at.persisted ? 1 : 0;
  const counts = `${at.attemptId} ${at.countedAttempts} ${at.attemptsMax} ${persisted}`;
  return `${counts} ${at.nodeId ?? "-"} ${at.stateMs} ${at.attemptMs} ${ended}`;
}

export function parseAt(text: string): JobAt {
  const words = text.split(" ");
  const [endedBy, outcome] = words[7] === "-" ? [] : words[7]!.split(":");
  return {
    attemptId: Number(words[0]),
    countedAttempts: Number(words[1]),
    attemptsMax: Number(words[2]),
    persisted: words[3] === "1",
    nodeId: words[4] === "-" ? undefined : words[4],
    stateMs: Number(words[5]),
    attemptMs: Number(words[6]),
    endedBy: endedBy as JobView["endedBy"],
    outcome: outcome as JobOutcome | undefined,
  };
}

/** What never changes, as the field `spec` keeps it. What decides a step stands in fields of its own. */
export function writeSpec(job: JobSpecRecord): string {
  const { jobId, sessionId, attemptsMax, turnId, ...spec } = job;
  return JSON.stringify(spec);
}

type Spec = Omit<JobSpecRecord, "jobId" | "sessionId" | "attemptsMax" | "turnId">;

export type Fields = ReadonlyMap<string, string>;

/** Of a record in memory, what decides. */
export function viewOf(fields: Fields): JobView & JobAt {
  return { state: fields.get("state") as JobState, ...parseAt(fields.get("at")!) };
}

/** Texts beside the record, as the store has them; an absent text is ''. */
export interface JobParts {
  payload: string;
  result: string;
}

export function recordOf(jobId: string, fields: Fields, parts: JobParts): JobRecord {
  const spec = JSON.parse(fields.get("spec")!) as Spec;
  return {
    ...spec,
    ...viewOf(fields),
    jobId,
    sessionId: fields.get("session_id") || undefined,
    turnId: fields.get("turn_id"),
    createdMs: Number(fields.get("created_ms")),
    listeners: wordsOf(fields.get("listeners")),
    affinity: fields.get("affinity") as AffinityOutcome | undefined,
    lastFailure: fields.get("last_failure"),
    avoid: wordsOf(fields.get("avoid")),
    payload: parts.payload || undefined,
    result: parts.result || fields.get("result"),
    timeline: [],
  };
}

/** Older entries of a job's timeline go first. A dozen attempts that each went all the way fit. */
export const TIMELINE_MAX = 64;

/** The timeline as a reader sees it. How a job began and that it was released is not in the entries: the record says so. */
export function timelineOf(record: JobRecord, entries: readonly string[]): JobTimelineEntry[] {
  const timeline = entries.map(parseEntry);
  if (entries.length < TIMELINE_MAX) timeline.unshift(firstEntry(record));
  if (record.state === "RELEASED") timeline.push(lastEntry(record));
  return timeline;
}

const firstEntry = ({ createdMs, originInstanceId }: JobRecord): JobTimelineEntry => ({
  at: new Date(createdMs).toISOString(),
  state: "CREATED",
  attempt_id: 1,
  instance_id: originInstanceId,
});

const lastEntry = ({ stateMs, state, attemptId, nodeId }: JobRecord): JobTimelineEntry => ({
  at: new Date(stateMs).toISOString(),
  state,
  attempt_id: attemptId,
  ...(nodeId && { node_id: nodeId }),
});

/** A space stands behind each word. What has none was cut at the end of the list. */
export const wordsOf = (text: string | undefined): string[] => (text ?? "").split(" ").slice(0, -1);

/** `at|state|attempt|node|instance|reason`. The reason comes last: it alone may contain the separator. */
function parseEntry(text: string): JobTimelineEntry {
  const [atMs, state, attemptId, nodeId, instanceId, ...reason] = text.split("|");
  return {
    at: new Date(Number(atMs)).toISOString(),
    state: state as JobState,
    attempt_id: Number(attemptId),
    ...(nodeId !== "-" && { node_id: nodeId }),
    ...(instanceId && { instance_id: instanceId }),
    ...(reason.some(Boolean) && { reason: reason.join("|") }),
  };
}
