import type { JobOutcome, JobState } from "@tenure/protocol";
import * as z from "zod";
import type { HotStore } from "../../store/hot-store.ts";
import type { MemorySpace } from "../../store/memory-space.ts";
import { defineScript } from "../../store/script.ts";
import {
  type Caller,
  checkStep,
  JOB_EVENTS,
  type JobStep,
  rowText,
  type StepAnswer,
  stateAfter,
} from "../policy/job-table.ts";
import { parseAt, TIMELINE_MAX, viewOf, wordsOf, writeAt } from "./job-codec.ts";
import { persistInMemory } from "./job-store.ts";
import { type JobKey, jobKeys, keysOfJob } from "./keys.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

/** Steps of one job that are about the same attempt, and about the same node if they name one. */
export interface Advance extends Caller {
  jobId: string;
  /** The writing instance, for the timeline. */
  instanceId: string;
  steps: readonly JobStep[];
  /** The result of the job, as JSON. Kept if a step of this call ends the job. */
  result?: string | undefined;
}

/** The record after the steps, so that the caller needs no further read. */
export interface Advanced {
  outcome: "answered";
  /** One for each step. */
  answers: StepAnswer[];
  state: JobState;
  attemptId: number;
  /** Attempts that ended and count against `attempts_max`. */
  countedAttempts: number;
  nodeId: string | undefined;
  /** The node before the steps: after a `reassign` its slot has to be freed. */
  formerNodeId: string | undefined;
  jobOutcome: JobOutcome | undefined;
  /** If a step of this call ended the job: instances to notify (`listen`). */
  listeners: string[];
  /** The store's time. */
  nowMs: number;
}

/** Length of a reason: enough to see what went wrong. */
const REASON_LENGTH_MAX = 300;
/** Length of the list of nodes to avoid. The Lua file has the same number. */
const AVOID_LENGTH_MAX = 400;

/** Texts, as the Lua file takes them; `-` stands for none. */
type Args = Record<"attempt_id" | "node_id" | "instance_id" | "steps" | "result_text", string>;

type Reply =
  | readonly ["absent"]
  | readonly [
      tag: "answered",
      state: JobState,
      at: string,
      formerNodeId: string,
      listeners: string,
      nowMs: string,
      ...answers: StepAnswer[],
    ];

const advanceScript = defineScript<JobKey, Args, Reply>({
  file: new URL("./lua/advance-job.lua", import.meta.url),
  keys: ["fsm", "payload", "result", "timeline"],
  texts: ["attempt_id", "node_id", "instance_id", "steps", "result_text"],
  args: unchecked<Args>(),
  reply: uncheckedReply<Reply>(),
}).inMemory(advanceInMemory);

/**
 * Applies steps to a job, in order and atomically. The answers decide what happens next; the same call again gives the same
 * answers, `duplicate` instead of `applied`. A record that has advanced does not expire.
 */
export async function advance(
  hot: HotStore,
  call: Advance,
): Promise<Advanced | { outcome: "absent" }> {
  const reply = await hot.run(advanceScript, keysOfJob(hot.prefix, call.jobId), {
    attempt_id: String(call.attemptId),
    node_id: call.nodeId ?? NONE,
    instance_id: call.instanceId,
    steps: call.steps.map(writeStep).join(""),
    result_text: call.result ?? "",
  });
  if (reply[0] === "absent") return { outcome: "absent" };
  const [, state, at, formerNodeId, listeners, nowMs, ...answers] = reply;
  const { attemptId, countedAttempts, nodeId, outcome } = parseAt(at);
  return {
    outcome: "answered",
    answers,
    state,
    attemptId,
    countedAttempts,
    nodeId,
    formerNodeId: formerNodeId === NONE ? undefined : formerNodeId,
    jobOutcome: outcome,
    listeners: wordsOf(listeners),
    nowMs: Number(nowMs),
  };
}

const NONE = "-";
const ROWS = Object.fromEntries(JOB_EVENTS.map((event) => [event, rowText(event)]));

/** One line; the grammar is in job-codec.ts. */
function writeStep(step: JobStep): string {
  const outcome = "outcome" in step ? step.outcome : NONE;
  const keepMs = "keepMs" in step ? step.keepMs : NONE;
  const affinity = (step.event === "dispatched" && step.affinity) || NONE;
  const code = (step.event === "reassign" && step.code) || NONE;
  const reason = "reason" in step ? shortText(step.reason ?? "") : "";
  return `${step.event} ${ROWS[step.event]} ${outcome} ${keepMs} ${affinity} ${flagsOf(step)} ${code} ${reason}\n`;
}

function flagsOf(step: JobStep): string {
  if (step.event === "result") return step.reserved ? "r" : NONE;
  if (step.event !== "reassign") return NONE;
  return `${step.counts ? "c" : ""}${step.avoid ? "a" : ""}${step.lost ? "l" : ""}` || NONE;
}

/** One line of whole characters. */
function shortText(text: string): string {
  const line = text.slice(0, REASON_LENGTH_MAX).replace(/[\r\n]+/g, " ");
  return line.replace(/\p{Surrogate}/gu, "\ufffd");
}

/** A line of `steps` again, for the store in memory. */
interface StepLine {
  event: JobStep["event"];
  outcome: JobOutcome | undefined;
  keepMs: number | undefined;
  affinity: string | undefined;
  reserved: boolean;
  counts: boolean;
  avoid: boolean;
  lost: boolean;
  code: string;
  reason: string;
}

function parseSteps(steps: string): StepLine[] {
  return steps
    .slice(0, -1)
    .split("\n")
    .map((line) => {
      const [event, , outcome, keepMs, affinity, flags, code, ...reason] = line.split(" ");
      return {
        event: event as JobStep["event"],
        outcome: outcome === NONE ? undefined : (outcome as JobOutcome),
        keepMs: keepMs === NONE ? undefined : Number(keepMs),
        affinity: affinity === NONE ? undefined : affinity,
        reserved: flags!.includes("r"),
        counts: flags!.includes("c"),
        avoid: flags!.includes("a"),
        lost: flags!.includes("l"),
        code: code!,
        reason: reason.join(" "),
      };
    });
}

function advanceInMemory(space: MemorySpace, keys: Record<JobKey, string>, args: Args): Reply {
  const fields = space.hash(keys.fsm);
  if (!fields.has("at")) return ["absent"];
  const caller = { attemptId: Number(args.attempt_id), nodeId: nodeOf(args.node_id) };
  const at = viewOf(fields);
  const { nodeId: formerNodeId, endedBy: endedBefore } = at;
  const answers = parseSteps(args.steps).map((step) => {
    const answer = checkStep(at, caller, step);
    if (answer === "applied") applyStep({ space, keys, args, at, step });
    return answer;
  });
  fields.set("state", at.state).set("at", writeAt(at));
  const hasEnded = !endedBefore && at.endedBy !== undefined;
  return [
    "answered",
    fields.get("state") as JobState,
    fields.get("at")!,
    formerNodeId ?? NONE,
    (hasEnded && fields.get("listeners")) || "",
    String(space.nowMs()),
    ...answers,
  ];
}

const nodeOf = (word: string): string | undefined => (word === NONE ? undefined : word);

/** A step that is applied in memory. */
interface Applying {
  space: MemorySpace;
  keys: Record<JobKey, string>;
  args: Args;
  /** The record before the step; after it when it returns. */
  at: ReturnType<typeof viewOf>;
  step: StepLine;
}

function applyStep({ space, keys, args, at, step }: Applying): void {
  const fields = space.hash(keys.fsm);
  at.state = stateAfter(at.state, step.event);
  if (!at.persisted) persistInMemory(space, keys);
  at.persisted = true;
  at.stateMs = space.nowMs();
  if (step.event === "dispatched" || step.event === "result") at.nodeId = nodeOf(args.node_id);
  if (step.affinity) fields.set("affinity", step.affinity);
  if (step.event === "reassign") {
    avoidNode(fields, at.nodeId, step);
    fields.set("last_failure", step.reason).set("last_reason", `${at.attemptId}:${step.code}`);
    if (step.lost && step.counts && at.nodeId)
      fields.set("lost", `${lostWord(at.attemptId, at.nodeId)}${fields.get("lost") ?? ""}`);
    at.countedAttempts += step.counts ? 1 : 0;
    at.attemptId += 1;
    at.nodeId = undefined;
    at.attemptMs = space.nowMs();
  }
  if (step.event === "result" || step.event === "give_up") {
    at.endedBy = step.event;
    at.outcome = step.outcome;
    space.delete(keys.payload);
    if (args.result_text !== "") space.set(keys.result, args.result_text);
  }
  if (at.state !== "RELEASED") {
    const words = [at.stateMs, at.state, at.attemptId, at.nodeId ?? NONE, args.instance_id];
    const entries = space.list(keys.timeline);
    entries.push([...words, step.reason].join("|"));
    if (entries.length > TIMELINE_MAX) entries.shift();
  }
  if (step.keepMs !== undefined)
    for (const key of Object.values(keys)) space.expire(key, step.keepMs);
}

const lostWord = (attemptId: number, nodeId: string): string => `${attemptId}:${nodeId} `;

const forgiveScript = defineScript({
  file: new URL("./lua/forgive-attempt.lua", import.meta.url),
  keys: ["fsm"],
  args: z.object({ attempt_id: z.int().positive(), node_id: z.string() }),
  reply: z.union([
    z.tuple([z.literal("forgiven"), z.coerce.number().int()]),
    z.tuple([z.literal("unchanged")]),
  ]),
}).inMemory((space, { fsm }, { attempt_id, node_id }) => {
  const fields = space.hash(fsm);
  const word = lostWord(attempt_id, node_id);
  const words = ` ${fields.get("lost") ?? ""}`;
  const at = fields.has("at") ? viewOf(fields) : undefined;
  if (!at || at.outcome || !words.includes(` ${word}`)) return ["unchanged"];
  at.countedAttempts = Math.max(0, at.countedAttempts - 1);
  fields.set("lost", words.replace(` ${word}`, " ").slice(1)).set("at", writeAt(at));
  return ["forgiven", at.countedAttempts];
});

/**
 * Takes an attempt off the count that was ended because its node was lost, when the node turns out to be alive. Returns how
 * many count now; `undefined` if the attempt ended for another reason, was taken off before, or the job has ended.
 */
export async function forgiveAttempt(
  hot: HotStore,
  { jobId, attemptId, nodeId }: { jobId: string; attemptId: number; nodeId: string },
): Promise<number | undefined> {
  const fsm = jobKeys.fsm(hot.prefix, jobId);
  const args = { attempt_id: attemptId, node_id: nodeId };
  const reply = await hot.run(forgiveScript, { fsm }, args);
  return reply[0] === "forgiven" ? reply[1] : undefined;
}

function avoidNode(fields: Map<string, string>, nodeId: string | undefined, step: StepLine): void {
  if (!step.avoid || !nodeId) return;
  fields.set("avoid", `${nodeId} ${fields.get("avoid") ?? ""}`.slice(0, AVOID_LENGTH_MAX));
}
