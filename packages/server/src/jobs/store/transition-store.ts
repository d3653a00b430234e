import type { JobOutcome, JobState } from "@tenure/protocol";
import * as z from "zod";
import { type Call, type Condition, SKIPPED, type Skipped, type When } from "../../store/call.ts";
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
import { parseAt, takenWord, wordsOf } from "./job-codec.ts";
import { type JobKey, jobKeys, keysOfJob } from "./keys.ts";
import { jobIn, type MemoryJob, noteIn, persistIn } from "./memory-job.ts";
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

/** As the Lua file takes them; `-` stands for none. */
type Texts = "attempt_id" | "node_id" | "instance_id" | "steps" | "result_text";

type Reply =
  | readonly ["absent"]
  | readonly [
      tag: "answered",
      state: JobState,
      at: string | AtNow,
      formerNodeId: string,
      listeners: string,
      nowMs: string | number,
      ...answers: StepAnswer[],
    ];

/** Redis replies with the text of it. */
type AtNow = Pick<MemoryJob, "attemptId" | "countedAttempts" | "nodeId" | "outcome">;

const advanceScript = defineScript<JobKey, Advance, Reply, Texts>({
  file: new URL("./lua/advance-job.lua", import.meta.url),
  keys: ["fsm", "payload", "result", "timeline"],
  texts: ["attempt_id", "node_id", "instance_id", "steps", "result_text"],
  args: unchecked<Advance>(),
  wire: (call) => ({
    attempt_id: String(call.attemptId),
    node_id: call.nodeId ?? NONE,
    instance_id: call.instanceId,
    steps: call.steps.map(writeStep).join(""),
    result_text: call.result ?? "",
  }),
  reply: uncheckedReply<Reply>(),
}).inMemory(advanceInMemory);

/**
 * Applies steps to a job, in order and atomically. The answers decide what happens next; the same call again gives the same
 * answers, `duplicate` instead of `applied`. A record that has advanced does not expire.
 */
export async function advance(hot: HotStore, call: Advance): Promise<AdvanceAnswer> {
  return advancedOf(await hot.run(advanceScript, keysOfJob(hot.prefix, call.jobId), call));
}

export type AdvanceAnswer = Advanced | { outcome: "absent" };

/** An advance that was started, for steps that depend on it; `isApplied` is their condition. */
export interface StartedAdvance<Answer extends AdvanceAnswer | Skipped = AdvanceAnswer | Skipped> {
  readonly call: Call;
  readonly steps: number;
  readonly answer: Promise<Answer>;
}

export function startAdvance(hot: HotStore, call: Advance): StartedAdvance<AdvanceAnswer> {
  const started = hot.start(advanceScript, keysOfJob(hot.prefix, call.jobId), call);
  const answer = started.reply.then(advancedOf);
  return { call: started, steps: call.steps.length, answer };
}

/** Applies the steps only if the conditions hold. */
export function advanceIf(hot: HotStore, when: Pick<When, "all">, call: Advance): StartedAdvance {
  const keys = keysOfJob(hot.prefix, call.jobId);
  const started = hot.startIf(when, advanceScript, keys, call);
  const answer = started.reply.then((reply) => (reply === SKIPPED ? reply : advancedOf(reply)));
  return { call: started, steps: call.steps.length, answer };
}

/** The last step was applied. */
export const isApplied = ({ call, steps }: StartedAdvance): Condition => ({
  call,
  at: ANSWERS_AT + steps - 1,
  is: "applied",
});

/** The position of the first answer in the reply. */
const ANSWERS_AT = 6;

function advancedOf(reply: Reply): AdvanceAnswer {
  if (reply[0] === "absent") return { outcome: "absent" };
  const [, state, at, formerNodeId, listeners, nowMs, ...answers] = reply;
  const now = typeof at === "string" ? parseAt(at) : at;
  const { attemptId, countedAttempts, nodeId, outcome } = now;
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
  const code = codeOf(step) ?? NONE;
  const reason = "reason" in step ? shortText(step.reason ?? "") : "";
  return `${step.event} ${ROWS[step.event]} ${outcome} ${keepMs} ${affinity} ${flagsOf(step)} ${code} ${reason}\n`;
}

function codeOf(step: JobStep): string | undefined {
  switch (step.event) {
    case "reassign":
      return step.code;
    case "dispatched":
      return step.takenBy;
    case "ack":
    case "started":
      return step.agoMs === undefined ? undefined : String(step.agoMs);
    default:
      return undefined;
  }
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

function advanceInMemory(
  space: MemorySpace,
  { fsm }: Record<JobKey, string>,
  call: Advance,
): Reply {
  const job = jobIn(space, fsm);
  if (!job) return ["absent"];
  const { nodeId: formerNodeId, endedBy: endedBefore } = job;
  const answers = call.steps.map((step) => {
    const answer = checkStep(job, call, step);
    if (answer === "applied") applyStep({ space, fsm, call, job, step });
    return answer;
  });
  const hasEnded = !endedBefore && job.endedBy !== undefined;
  const { state, attemptId, countedAttempts, nodeId, outcome } = job;
  return [
    "answered",
    state,
    { attemptId, countedAttempts, nodeId, outcome },
    formerNodeId ?? NONE,
    hasEnded ? job.listeners : "",
    space.nowMs(),
    ...answers,
  ];
}

/** A step that is applied in memory. */
interface Applying {
  space: MemorySpace;
  fsm: string;
  call: Advance;
  /** The record before the step; after it when it returns. */
  job: MemoryJob;
  step: JobStep;
}

function applyStep({ space, fsm, call, job, step }: Applying): void {
  const nowMs = space.nowMs();
  const reason = "reason" in step ? shortText(step.reason ?? "") : "";
  const agoMs = (step.event === "ack" || step.event === "started") && step.agoMs;
  const sinceMs = typeof agoMs === "number" ? Math.max(job.stateMs, nowMs - agoMs) : nowMs;
  job.state = stateAfter(job.state, step.event);
  if (!job.persisted) persistIn(space, fsm, job);
  job.stateMs = sinceMs;
  if (step.event === "dispatched" || step.event === "result") job.nodeId = call.nodeId;
  if (step.event === "dispatched") {
    if (step.affinity) job.affinity = step.affinity;
    if (step.takenBy) job.taken = takenWord(job.attemptId, step.takenBy);
  }
  if (step.event === "reassign") {
    if (step.avoid && job.nodeId)
      job.avoid = `${job.nodeId} ${job.avoid}`.slice(0, AVOID_LENGTH_MAX);
    job.lastFailure = reason;
    job.lastReason = `${job.attemptId}:${step.code || NONE}`;
    if (step.lost && step.counts && job.nodeId)
      job.lost = `${lostWord(job.attemptId, job.nodeId)}${job.lost}`;
    job.countedAttempts += step.counts ? 1 : 0;
    job.attemptId += 1;
    job.nodeId = undefined;
    job.attemptMs = nowMs;
  }
  if (step.event === "result" || step.event === "give_up") {
    job.endedBy = step.event;
    job.outcome = step.outcome;
    job.payload = undefined;
    if (call.result) job.result = call.result;
  }
  if (step.event === "released") {
    job.taken = undefined;
    space.expire(fsm, step.keepMs);
    return;
  }
  const { state, attemptId, nodeId } = job;
  noteIn(job, { atMs: sinceMs, state, attemptId, nodeId, instanceId: call.instanceId, reason });
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
  const job = jobIn(space, fsm);
  const word = lostWord(attempt_id, node_id);
  if (!job || job.outcome || !` ${job.lost}`.includes(` ${word}`)) return ["unchanged"];
  job.countedAttempts = Math.max(0, job.countedAttempts - 1);
  job.lost = ` ${job.lost}`.replace(` ${word}`, " ").slice(1);
  return ["forgiven", job.countedAttempts];
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

const takeScript = defineScript({
  file: new URL("./lua/take-attempt.lua", import.meta.url),
  keys: ["fsm"],
  args: z.object({ attempt_id: z.int().positive(), boot_id: z.string() }),
  reply: z.union([z.tuple([z.literal("taken")]), z.tuple([z.literal("unchanged")])]),
}).inMemory((space, { fsm }, { attempt_id, boot_id }) => {
  const job = jobIn(space, fsm);
  if (job?.state !== "DISPATCHED" || job.attemptId !== attempt_id) return ["unchanged"];
  job.taken = boot_id === "" ? undefined : takenWord(attempt_id, boot_id);
  return ["taken"];
});

/**
 * Notes the process that takes a dispatched attempt, for an instance that did not know it when it wrote DISPATCHED. Without
 * `bootId`: none, because the attempt was not sent.
 */
export async function takeAttempt(
  hot: HotStore,
  {
    jobId,
    attemptId,
    bootId = "",
  }: { jobId: string; attemptId: number; bootId?: string | undefined },
): Promise<void> {
  const fsm = jobKeys.fsm(hot.prefix, jobId);
  await hot.run(takeScript, { fsm }, { attempt_id: attemptId, boot_id: bootId });
}
