import type { JobOutcome, JobState } from "@tenure/protocol";
import type { HotStore } from "../store/hot-store.ts";
import type { MemorySpace } from "../store/memory-space.ts";
import { defineScript } from "../store/script.ts";
import {
  type Caller,
  JOB_EVENTS,
  type JobStep,
  judge,
  rowText,
  type StepAnswer,
  stateAfter,
} from "./fsm.ts";
import { type JobKey, keysOfJob } from "./job-keys.ts";
import { TIMELINE_MAX, viewOf, wordsOf } from "./job-record.ts";
import { persistInMemory } from "./job-store.ts";
import { trusted, trustedReply } from "./trusted.ts";

/** Steps in the life of one job that are about the same attempt, and on the same node if they name one. */
export interface Advance extends Caller {
  jobId: string;
  /** Who writes it, for the timeline. */
  instanceId: string;
  steps: readonly JobStep[];
  /** What the job ended with, as JSON text. Kept when a step of this call ends it. */
  result?: string | undefined;
}

/** The record as the steps left it, so that the answer says what to do next without another look. */
export interface Advanced {
  outcome: "answered";
  /** One for each step. */
  answers: StepAnswer[];
  state: JobState;
  attemptId: number;
  /** Attempts that ended and count against `attempts_max`. */
  countedAttempts: number;
  nodeId: string | undefined;
  /** Before the steps: after a `reassign` the node whose slot has to be freed. */
  formerNodeId: string | undefined;
  jobOutcome: JobOutcome | undefined;
  sessionId: string | undefined;
  /** Instances where somebody waits for the job's end (`listen`). */
  listeners: string[];
  /** The store's time. */
  nowMs: number;
}

/** Words of a worker: enough to see what went wrong. */
const REASON_LENGTH_MAX = 300;
/** As many nodes as fit; nobody needs to avoid more. */
const AVOID_LENGTH_MAX = 400;

interface StepArgs {
  event: JobStep["event"];
  row: string;
  /** Fields and values that change with it. */
  set: string[];
  outcome: JobOutcome | undefined;
  reason: string | undefined;
  reserved: boolean | undefined;
  counts: boolean | undefined;
  avoid: boolean | undefined;
  keep_ms: number | undefined;
}

interface Args {
  attempt_id: number;
  node_id: string;
  instance_id: string;
  entries_max: number;
  avoid_max: number;
  steps: StepArgs[];
  result_text: string;
}

type Reply =
  | readonly ["absent"]
  | readonly [
      tag: "answered",
      state: JobState,
      attemptId: number,
      countedAttempts: number,
      nodeId: string,
      formerNodeId: string,
      outcome: JobOutcome | "",
      sessionId: string,
      listeners: string,
      nowMs: number,
      ...answers: StepAnswer[],
    ];

const advanceScript = defineScript<JobKey, Args, Reply>({
  file: new URL("./lua/advance-job.lua", import.meta.url),
  keys: ["fsm", "payload", "result", "timeline"],
  texts: ["result_text"],
  args: trusted<Args>(),
  reply: trustedReply<Reply>(),
}).inMemory(advanceInMemory);

/**
 * Applies what happened to a job, in order and at once. The answers decide what happens next, and the same call again
 * gives the same answers, `duplicate` where it was `applied`. What is applied is kept for good.
 */
export async function advance(
  hot: HotStore,
  call: Advance,
): Promise<Advanced | { outcome: "absent" }> {
  const reply = await hot.run(advanceScript, keysOfJob(hot.prefix, call.jobId), {
    attempt_id: call.attemptId,
    node_id: call.nodeId ?? "",
    instance_id: call.instanceId,
    entries_max: TIMELINE_MAX,
    avoid_max: AVOID_LENGTH_MAX,
    steps: call.steps.map(argsOf),
    result_text: call.result ?? "",
  });
  if (reply[0] === "absent") return { outcome: "absent" };
  const [, state, attemptId, counted, nodeId, formerNodeId, outcome, sessionId, listeners, nowMs] =
    reply;
  return {
    outcome: "answered",
    answers: reply.slice(ANSWERS_FROM) as StepAnswer[],
    state,
    attemptId,
    countedAttempts: counted,
    nodeId: nodeId || undefined,
    formerNodeId: formerNodeId || undefined,
    jobOutcome: outcome || undefined,
    sessionId: sessionId || undefined,
    listeners: wordsOf(listeners),
    nowMs,
  };
}

const ANSWERS_FROM = 10;

const ROWS = Object.fromEntries(JOB_EVENTS.map((event) => [event, rowText(event)]));

function argsOf(step: JobStep): StepArgs {
  const reason = "reason" in step ? shortText(step.reason) : undefined;
  return {
    event: step.event,
    row: ROWS[step.event]!,
    set: fieldsOf(step, reason),
    outcome: "outcome" in step ? step.outcome : undefined,
    reason,
    reserved: step.event === "result" ? step.reserved : undefined,
    counts: step.event === "reassign" ? step.counts : undefined,
    avoid: step.event === "reassign" ? step.avoid : undefined,
    keep_ms: "keepMs" in step ? step.keepMs : undefined,
  };
}

function fieldsOf(step: JobStep, reason: string | undefined): string[] {
  switch (step.event) {
    case "dispatched":
      return step.affinity ? ["affinity", step.affinity] : [];
    case "result":
    case "give_up":
      return ["ended_by", step.event, "outcome", step.outcome];
    case "reassign":
      return ["last_failure", reason ?? ""];
    default:
      return [];
  }
}

/** Half a character would stop the script: JSON can say it, Lua's reader cannot. */
function shortText(text: string | undefined): string | undefined {
  return text?.slice(0, REASON_LENGTH_MAX).replace(/\p{Surrogate}/gu, "\ufffd");
}

function advanceInMemory(space: MemorySpace, keys: Record<JobKey, string>, args: Args): Reply {
  const fields = space.hash(keys.fsm);
  const held = fields.get("state");
  if (!held || held === "VOID") return ["absent"];
  const caller = { attemptId: args.attempt_id, nodeId: args.node_id };
  const formerNodeId = fields.get("node_id")!;
  const answers = args.steps.map((step) => {
    const answer = judge(viewOf(fields), caller, step);
    if (answer === "applied") applyStep({ space, keys, args, step });
    return answer;
  });
  const view = viewOf(fields);
  return [
    "answered",
    view.state,
    view.attemptId,
    view.countedAttempts,
    view.nodeId ?? "",
    formerNodeId,
    view.outcome ?? "",
    fields.get("session_id") ?? "",
    fields.get("listeners") ?? "",
    space.nowMs(),
    ...answers,
  ];
}

/** One applied step in memory, and where it happens. */
interface Applying {
  space: MemorySpace;
  keys: Record<JobKey, string>;
  args: Args;
  step: StepArgs;
}

function applyStep({ space, keys, args, step }: Applying): void {
  const fields = space.hash(keys.fsm);
  const to = stateAfter(fields.get("state") as JobState, step.event);
  for (let at = 0; at < step.set.length; at += 2) fields.set(step.set[at]!, step.set[at + 1]!);
  if (step.event === "reassign") beginAttempt(fields, step, args.avoid_max);
  if (step.event === "dispatched" || step.event === "result") fields.set("node_id", args.node_id);
  if (step.outcome) {
    space.delete(keys.payload);
    if (args.result_text !== "") space.set(keys.result, args.result_text);
  }
  fields.set("state", to);
  noteStep({ space, keys, args, step });
  if (!fields.has("persisted")) persistInMemory(space, keys);
  if (step.keep_ms !== undefined)
    for (const key of Object.values(keys)) space.expire(key, step.keep_ms);
}

function beginAttempt(fields: Map<string, string>, step: StepArgs, avoidMax: number): void {
  const nodeId = fields.get("node_id");
  if (step.avoid && nodeId)
    fields.set("avoid", `${nodeId} ${fields.get("avoid") ?? ""}`.slice(0, avoidMax));
  if (step.counts) increment(fields, "counted_attempts");
  increment(fields, "attempt_id");
  fields.set("node_id", "");
}

function increment(fields: Map<string, string>, name: string): void {
  fields.set(name, String(Number(fields.get(name)) + 1));
}

function noteStep({ space, keys, args, step }: Applying): void {
  const fields = space.hash(keys.fsm);
  const now = String(space.nowMs());
  fields.set("state_ms", now);
  if (step.event === "reassign") fields.set("attempt_ms", now);
  const entries = space.list(keys.timeline);
  entries.push(
    [
      now,
      fields.get("state"),
      fields.get("attempt_id"),
      fields.get("node_id"),
      args.instance_id,
      step.reason ?? "",
    ].join("|"),
  );
  if (entries.length > args.entries_max) entries.splice(0, entries.length - args.entries_max);
}
