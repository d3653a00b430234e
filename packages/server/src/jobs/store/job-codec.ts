import type { AffinityOutcome, JobOutcome, JobState, JobTimelineEntry } from "@tenure/protocol";
import type { JobRecord, JobSpec } from "../job.ts";
import type { JobView } from "../policy/job-table.ts";
import { NODE_LOST_TEXT } from "../policy/retry-policy.ts";

/**
 * The texts of a job in the hot store. `store/lua/advance-job.lua` and `create-job.lua` read and write the same ones. Words
 * are separated by one space; `-` stands for none.
 *
 *   at           attempt counted attempts_max persisted(0|1) node state_ms attempt_ms ended(event:outcome)
 *   steps        one line per step: event row outcome keep_ms affinity flags code reason
 *                row: one letter per state, see policy/job-table.ts · flags: r reserved, c counts, a avoid, l lost
 *                code: of reassign its reason as a word, of dispatched the boot id of the process that takes the attempt,
 *                of ack and started how many ms ago it was
 *   timeline     one line per step: ms letter attempt node reason; ms since the job was created; the letter begins the name
 *                of the state; node = is the node of the line before, ~ that of the record. A line @instance names who wrote
 *                the lines after it, the first lines are of the origin. A first line + means that the list `timeline` has
 *                lines as well. There an instance of 0.1 writes at_ms|state|attempt|node|instance|reason
 *   avoid        node ids, newest first, a space after each
 *   lost         attempt:node of counted attempts whose node was lost, a space after each
 *   affinity     absent for a job without a turn
 *   taken        attempt:boot_id of the process that took this attempt without a word; empty or absent in a released record
 *   last_reason  attempt:code of the attempt before this one · last_failure: the same as text
 */

/** The field `at`. */
interface JobAt {
  attemptId: number;
  countedAttempts: number;
  attemptsMax: number;
  persisted: boolean;
  nodeId?: string | undefined;
  stateMs: number;
  attemptMs: number;
  endedBy: JobView["endedBy"];
  outcome: JobOutcome | undefined;
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

/**
 * The field `spec`: everything that never changes. A released record keeps what stands before `bodyHash`, or before
 * `"turn":false`; the rest only an open job needs.
 */
export const writeSpec = (job: JobSpec): string =>
  JSON.stringify({
    tenant: job.tenant,
    token: job.token,
    requestId: job.requestId,
    pool: job.pool,
    service: job.service,
    priority: job.priority,
    traceId: job.traceId,
    finalize: job.finalize,
    originInstanceId: job.originInstanceId,
    turn: job.turn,
    bodyHash: job.bodyHash,
    pendingTimeoutMs: job.pendingTimeoutMs,
    ackTimeoutMs: job.ackTimeoutMs,
    runTimeoutMs: job.runTimeoutMs,
    durable: job.durable || undefined,
    retry: job.retry,
  } satisfies Required<Record<keyof Spec, unknown>>);

type Spec = Omit<JobSpec, "jobId" | "sessionId" | "attemptsMax">;

export type Fields = ReadonlyMap<string, string>;

/** The fields of a record that a step is checked against. */
export function viewOf(fields: Fields): JobView & JobAt {
  return { state: fields.get("state") as JobState, ...parseAt(fields.get("at")!) };
}

/** Texts stored beside the record; '' if absent. */
export interface JobParts {
  payload: string;
  result: string;
}

export function recordOf(jobId: string, fields: Fields, parts: JobParts): JobRecord {
  const spec = JSON.parse(fields.get("spec")!) as Spec;
  const view = viewOf(fields);
  return {
    ...RELEASED_SPEC,
    ...spec,
    ...view,
    jobId,
    sessionId: fields.get("session_id") || undefined,
    turnId: fields.get("turn_id"),
    createdMs: Number(fields.get("created_ms")),
    listeners: wordsOf(fields.get("listeners")),
    affinity: affinityOf({
      ...view,
      affinity: fields.get("affinity") as AffinityOutcome | undefined,
    }),
    lastFailure: fields.get("last_failure"),
    isSuspect: isSuspectOf({
      attemptId: view.attemptId,
      lastFailure: fields.get("last_failure"),
      lastReason: fields.get("last_reason"),
    }),
    takenBy: takenByOf({ attemptId: view.attemptId, taken: fields.get("taken") }),
    avoid: wordsOf(fields.get("avoid")),
    payload: parts.payload || undefined,
    result: parts.result || fields.get("result"),
    timeline: [],
  };
}

/** What `advance-job.lua` removes from the spec of a released record. */
const RELEASED_SPEC = {
  bodyHash: "",
  turn: false,
  pendingTimeoutMs: 0,
  ackTimeoutMs: 0,
  runTimeoutMs: 0,
} satisfies Partial<Spec>;

/** A job that has been on a node has an affinity, also if it is not written. */
export const affinityOf = (
  job: Pick<JobAt, "nodeId" | "attemptId"> & { affinity: AffinityOutcome | undefined },
): AffinityOutcome | undefined =>
  job.affinity ?? (job.nodeId || job.attemptId > 1 ? "no_turn" : undefined);

/** The process that takes this attempt without a word; `taken` may be of an earlier one. */
export function takenByOf({
  attemptId,
  taken = "",
}: {
  attemptId: number;
  taken: string | undefined;
}): string | undefined {
  const [attempt, bootId] = taken.split(":");
  return Number(attempt) === attemptId ? bootId : undefined;
}

export const takenWord = (attemptId: number, bootId: string): string => `${attemptId}:${bootId}`;

/**
 * Whether the job may have caused the loss of its last node. An instance of 0.1.0 writes `last_failure` alone: then
 * `last_reason` is missing or of an earlier attempt, and the text decides.
 */
export function isSuspectOf({
  attemptId,
  lastFailure,
  lastReason = "",
}: {
  attemptId: number;
  lastFailure: string | undefined;
  lastReason: string | undefined;
}): boolean {
  if (lastFailure === undefined) return false;
  const [attempt, code] = lastReason.split(":");
  if (Number(attempt) === attemptId - 1 && code !== NONE) return code === "node_lost";
  return lastFailure.startsWith(NODE_LOST_TEXT);
}

const NONE = "-";

/** Entries kept of a job's timeline, the newest: a dozen complete attempts. */
export const TIMELINE_MAX = 64;

/**
 * The timeline of a record in Redis. `text`: the field of the record; `listed`: what instances of 0.1 keep as a list.
 */
export function timelineOf(
  record: JobRecord,
  { text = "", listed }: { text?: string | undefined; listed: readonly string[] },
): JobTimelineEntry[] {
  const own = parseTimeline(record, text);
  const entries = [...listed.map(parseEntry), ...own];
  if (listed.length > 0 && own.length > 0)
    entries.sort((a, b) => (a.at < b.at ? -1 : +(a.at > b.at)));
  return withEnds(record, entries);
}

/** Adds the first and the last entry, which are made from the record. */
export function withEnds(
  record: JobRecord,
  entries: readonly JobTimelineEntry[],
): JobTimelineEntry[] {
  const timeline = entries.slice(-TIMELINE_MAX);
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

/** Words with a space after each. A word without one was cut off at the length limit. */
export const wordsOf = (text: string | undefined): string[] =>
  text ? text.split(" ").slice(0, -1) : [];

const STATE_OF: Record<string, JobState> = {
  C: "CREATED",
  D: "DISPATCHED",
  A: "ACCEPTED",
  R: "RUNNING",
  F: "FINISHED",
};

function parseTimeline(record: JobRecord, text: string): JobTimelineEntry[] {
  const entries: JobTimelineEntry[] = [];
  let instanceId = record.originInstanceId;
  let nodeId = NONE;
  for (const line of text.split("\n")) {
    if (line === "" || line === "+") continue;
    if (line.startsWith("@")) {
      instanceId = line.slice(1);
      continue;
    }
    const [ms, letter, attemptId, node, ...reason] = line.split(" ");
    if (node === "~") nodeId = record.nodeId ?? NONE;
    else if (node !== "=") nodeId = node!;
    entries.push(
      entryOf({
        atMs: record.createdMs + Number(ms),
        state: STATE_OF[letter!]!,
        attemptId: Number(attemptId),
        nodeId,
        instanceId,
        reason: reason.join(" "),
      }),
    );
  }
  return entries;
}

/** The reason comes last because it may contain the separator. */
function parseEntry(text: string): JobTimelineEntry {
  const [atMs, state, attemptId, nodeId, instanceId, ...reason] = text.split("|");
  return entryOf({
    atMs: Number(atMs),
    state: state as JobState,
    attemptId: Number(attemptId),
    nodeId: nodeId!,
    instanceId: instanceId!,
    reason: reason.join("|"),
  });
}

const entryOf = (entry: {
  atMs: number;
  state: JobState;
  attemptId: number;
  nodeId: string;
  instanceId: string;
  reason: string;
}): JobTimelineEntry => ({
  at: new Date(entry.atMs).toISOString(),
  state: entry.state,
  attempt_id: entry.attemptId,
  ...(entry.nodeId !== NONE && { node_id: entry.nodeId }),
  ...(entry.instanceId && { instance_id: entry.instanceId }),
  ...(entry.reason && { reason: entry.reason }),
});
