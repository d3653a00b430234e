import assert from "node:assert";
import type { AffinityOutcome, JobOutcome, JobState } from "@tenure/protocol";

export const JOB_EVENTS = [
  "create",
  "dispatched",
  "ack",
  "started",
  "result",
  "reassign",
  "give_up",
  "released",
] as const;
export type JobEvent = (typeof JOB_EVENTS)[number];

/** The state of a job; `ABSENT` when it has no record. */
export type JobPlace = JobState | "ABSENT";

/**
 * What an event does to a job whose attempt and node match: the next state, or why nothing changes. `early`: another event
 * must come first. `ended`: too late. `same`: a duplicate if the job ended in the same way, else `ended`.
 */
export type Cell = JobState | "duplicate" | "early" | "ended" | "same" | "absent";

type Row = readonly [Cell, Cell, Cell, Cell, Cell, Cell, Cell];
const again = "duplicate"; // Done before: the caller continues as if it had been the first.

// Every cell is a decision; none is an omission.
// biome-ignore format: a table is read by its columns
const TABLE: Record<JobEvent, Row> = {
  //            ABSENT     CREATED       DISPATCHED  ACCEPTED    RUNNING     FINISHED    RELEASED
  create:     ["CREATED", again,        again,      again,      again,      again,      again     ],
  dispatched: ["absent",  "DISPATCHED", again,      again,      again,      "ended",    "ended"   ],
  ack:        ["absent",  "early",      "ACCEPTED", again,      again,      "ended",    "ended"   ],
  started:    ["absent",  "early",      "RUNNING",  "RUNNING",  again,      "ended",    "ended"   ],
  result:     ["absent",  "FINISHED",   "FINISHED", "FINISHED", "FINISHED", "same",     "same"    ],
  reassign:   ["absent",  "CREATED",    "CREATED",  "CREATED",  "CREATED",  "ended",    "ended"   ],
  give_up:    ["absent",  "FINISHED",   "FINISHED", "FINISHED", "FINISHED", "same",     "same"    ],
  released:   ["absent",  "early",      "early",    "early",    "early",    "RELEASED", again     ],
};

const COLUMNS: Record<JobPlace, number> = {
  ABSENT: 0,
  CREATED: 1,
  DISPATCHED: 2,
  ACCEPTED: 3,
  RUNNING: 4,
  FINISHED: 5,
  RELEASED: 6,
};
export const JOB_PLACES = Object.keys(COLUMNS) as JobPlace[];

export function cellOf(place: JobPlace, event: JobEvent): Cell {
  return TABLE[event][COLUMNS[place]] as Cell;
}

/** The state after an `applied` event. */
export function stateAfter(state: JobState, event: JobEvent): JobState {
  const cell = cellOf(state, event);
  assert(cell in COLUMNS, `${event} leads nowhere from ${state}`);
  return cell as JobState;
}

const LETTERS: Partial<Record<Cell, string>> = {
  duplicate: "=",
  early: "<",
  ended: "!",
  same: "?",
};

/** An event's row as `store/lua/advance-job.lua` reads it: the table is here and nowhere else. */
export function rowText(event: JobEvent): string {
  const cells = TABLE[event].slice(1);
  return cells.map((cell) => LETTERS[cell] ?? COLUMNS[cell as JobState]).join("");
}

/** An event of a job with its details. The attempt and the node it is about belong to the call. */
export type JobStep =
  /** Written before `job_assign` is sent, by the instance that reserved the slot. */
  /** `takenBy`: the process that takes the attempt without a word, because its node starts short jobs in silence. */
  | {
      event: "dispatched";
      affinity?: AffinityOutcome | undefined;
      takenBy?: string | undefined;
    }
  /** `agoMs`: how long before this call it happened, by the node. The entry lies between the dispatch and now. */
  | { event: "ack"; agoMs?: number | undefined }
  /** Written for `job_started` and for the first progress. */
  | { event: "started"; agoMs?: number | undefined }
  /**
   * `reserved`: the caller has checked that this node has the slot of this attempt. Only then may a result end a job whose
   * record names no node, because `dispatched` was never written or was lost with a failed-over Redis.
   */
  | {
      event: "result";
      outcome: "succeeded" | "failed";
      reserved?: boolean | undefined;
      reason?: string | undefined;
    }
  /**
   * `counts`: against `attempts_max`; not for a drain or a lost instance. `avoid`: prefer other nodes from now on.
   * `lost`: its node was lost; if the node turns out to be alive, the attempt is taken off the count.
   */
  | {
      event: "reassign";
      reason: string;
      /** The reason as a word, for the record. */
      code?: string | undefined;
      counts: boolean;
      avoid: boolean;
      lost?: boolean | undefined;
    }
  | { event: "give_up"; outcome: Exclude<JobOutcome, "succeeded">; reason?: string | undefined }
  /** The slot is free. `keepMs`: how long the record stays. */
  | { event: "released"; keepMs: number };

/** The attempt a call is about, and the node that reports it or is chosen. */
export interface Caller {
  attemptId: number;
  nodeId?: string | undefined;
}

/** The record fields a step is checked against. */
export interface JobView {
  state: JobState;
  attemptId: number;
  /** The node of this attempt; absent until it is dispatched. */
  nodeId?: string | undefined;
  endedBy?: "result" | "give_up" | undefined;
  outcome?: JobOutcome | undefined;
  /** Attempts that ended and count against `attemptsMax`. */
  countedAttempts: number;
  attemptsMax: number;
}

export const STEP_ANSWERS = [
  /** The record changed. */
  "applied",
  /** Done before: the same call again, or the job is past this step. */
  "duplicate",
  /** The call is about an older attempt. */
  "stale",
  /** The call is about an attempt the record has not reached: Redis lost the write. */
  "ahead",
  /** The attempt is on another node. */
  "other_node",
  /** A result of an attempt that is on no node, without `reserved`. */
  "unplaced",
  /** A `reassign` that would begin one attempt too many. */
  "exhausted",
  "early",
  "ended",
] as const;
export type StepAnswer = (typeof STEP_ANSWERS)[number];

const NODE_CHECKED: ReadonlySet<JobEvent> = new Set([
  "dispatched",
  "ack",
  "started",
  "result",
  "reassign",
]);

/** The fields of a step that decide. */
export interface StepFacts {
  event: JobStep["event"];
  outcome?: JobOutcome | undefined;
  reserved?: boolean | undefined;
  counts?: boolean | undefined;
}

/** What a step does to a job: the rule that every store follows. */
export function checkStep(job: JobView, caller: Caller, step: StepFacts): StepAnswer {
  return (
    checkAttempt(job, caller, step.event) ??
    checkNode(job, caller, step.event) ??
    checkState(job, step)
  );
}

function checkAttempt(
  job: JobView,
  { attemptId }: Caller,
  event: JobEvent,
): StepAnswer | undefined {
  if (attemptId === job.attemptId) return undefined;
  if (event === "reassign" && attemptId + 1 === job.attemptId) return "duplicate";
  return attemptId < job.attemptId ? "stale" : "ahead";
}

function checkNode(job: JobView, { nodeId }: Caller, event: JobEvent): StepAnswer | undefined {
  if (!nodeId || !job.nodeId || !NODE_CHECKED.has(event)) return undefined;
  return nodeId === job.nodeId ? undefined : "other_node";
}

function checkState(job: JobView, step: StepFacts): StepAnswer {
  const cell = cellOf(job.state, step.event);
  if (cell === "same") return endedAlike(job, step) ? "duplicate" : "ended";
  if (cell === "duplicate" || cell === "early" || cell === "ended") return cell;
  if (step.event === "result" && job.state === "CREATED" && !step.reserved) return "unplaced";
  if (step.counts && job.countedAttempts + 1 >= job.attemptsMax) return "exhausted";
  return "applied";
}

/** Two results are the same, because a node reports one attempt once. Two ways to give up are not. */
function endedAlike(job: JobView, step: StepFacts): boolean {
  if (step.event !== job.endedBy) return false;
  return step.event !== "give_up" || step.outcome === job.outcome;
}
