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

/** Where a job is; `ABSENT` when it has no record. */
export type JobPlace = JobState | "ABSENT";

/**
 * What an event does to a job whose attempt and node are right: the state it goes to, or why nothing changes.
 * `early`: something must happen first. `ended`: too late. `same`: a duplicate if the job ended in just this way,
 * else `ended`.
 */
export type Cell = JobState | "duplicate" | "early" | "ended" | "same" | "absent";

type Row = readonly [Cell, Cell, Cell, Cell, Cell, Cell, Cell];
const again = "duplicate"; // Already so: the caller goes on as if it had been the first.

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

/** An event's row as `lua/advance-job.lua` reads it: the table is here and nowhere else. */
export function rowText(event: JobEvent): string {
  const cells = TABLE[event].slice(1);
  return cells.map((cell) => LETTERS[cell] ?? COLUMNS[cell as JobState]).join("");
}

/** One thing that happened to a job. Who says so, about which attempt on which node, is the call's. */
export type JobStep =
  /** Written before `job_assign` is sent, by whoever holds the slot. */
  | { event: "dispatched"; affinity?: AffinityOutcome | undefined }
  | { event: "ack" }
  /** Also for the first progress. */
  | { event: "started" }
  /**
   * `reserved`: the caller has seen that this node holds the slot of this attempt. Only then may a result end a
   * job whose record does not name a node, because `dispatched` was never written or was lost with a failed-over Redis.
   */
  | {
      event: "result";
      outcome: "succeeded" | "failed";
      reserved?: boolean | undefined;
      reason?: string | undefined;
    }
  /**
   * `counts`: against `attempts_max`; not for a drain or a lost instance. `avoid`: prefer other nodes from now on.
   * `lost`: for the loss of its node; should that turn out to be alive, the attempt is taken off the count.
   */
  | {
      event: "reassign";
      reason: string;
      counts: boolean;
      avoid: boolean;
      lost?: boolean | undefined;
    }
  | { event: "give_up"; outcome: Exclude<JobOutcome, "succeeded">; reason?: string | undefined }
  /** The slot is free. `keepMs`: how long the record stays. */
  | { event: "released"; keepMs: number };

/** Which attempt a call speaks of, and which node says so or is meant. */
export interface Caller {
  attemptId: number;
  nodeId?: string | undefined;
}

/** Of a record, what decides. */
export interface JobView {
  state: JobState;
  attemptId: number;
  /** Of this attempt; absent until it is dispatched. */
  nodeId?: string | undefined;
  endedBy?: "result" | "give_up" | undefined;
  outcome?: JobOutcome | undefined;
  /** Attempts that ended and count against `attemptsMax`. */
  countedAttempts: number;
  attemptsMax: number;
}

export const STEP_ANSWERS = [
  /** Changed the record. */
  "applied",
  /** Was so already. The same call again, or what it says has long been passed. */
  "duplicate",
  /** Of an older attempt. */
  "stale",
  /** Of an attempt the record has not reached: it was written to a Redis that lost it. */
  "ahead",
  /** This attempt is on another node. */
  "other_node",
  /** A result of an attempt that is on no node, and the caller did not say `reserved`. */
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

/** Of a step, what decides. */
export interface Claim {
  event: JobStep["event"];
  outcome?: JobOutcome | undefined;
  reserved?: boolean | undefined;
  counts?: boolean | undefined;
}

/** What a step does to a job as it is: the rule that every store follows. */
export function judge(job: JobView, caller: Caller, step: Claim): StepAnswer {
  return (
    judgeAttempt(job, caller, step.event) ??
    judgeNode(job, caller, step.event) ??
    judgeState(job, step)
  );
}

function judgeAttempt(
  job: JobView,
  { attemptId }: Caller,
  event: JobEvent,
): StepAnswer | undefined {
  if (attemptId === job.attemptId) return undefined;
  if (event === "reassign" && attemptId + 1 === job.attemptId) return "duplicate";
  return attemptId < job.attemptId ? "stale" : "ahead";
}

function judgeNode(job: JobView, { nodeId }: Caller, event: JobEvent): StepAnswer | undefined {
  if (!nodeId || !job.nodeId || !NODE_CHECKED.has(event)) return undefined;
  return nodeId === job.nodeId ? undefined : "other_node";
}

function judgeState(job: JobView, step: Claim): StepAnswer {
  const cell = cellOf(job.state, step.event);
  if (cell === "same") return endedSo(job, step) ? "duplicate" : "ended";
  if (cell === "duplicate" || cell === "early" || cell === "ended") return cell;
  if (step.event === "result" && job.state === "CREATED" && !step.reserved) return "unplaced";
  if (step.counts && job.countedAttempts + 1 >= job.attemptsMax) return "exhausted";
  return "applied";
}

/** A result is the same whatever it says: a node reports one attempt once. Two ways to give up are not the same. */
function endedSo(job: JobView, step: Claim): boolean {
  if (step.event !== job.endedBy) return false;
  return step.event !== "give_up" || step.outcome === job.outcome;
}
