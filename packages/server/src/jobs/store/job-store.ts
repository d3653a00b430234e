import type { JobState } from "@tenure/protocol";
import * as z from "zod";
import type { Condition, Started } from "../../store/call.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import type { JobAttempt, JobRecord, JobSpec } from "../job.ts";
import { parseAt, recordOf, timelineOf, writeSpec } from "./job-codec.ts";
import { type JobKey, jobKeys, keysOfJob } from "./keys.ts";
import {
  isVoid,
  jobIn,
  type MemoryJob,
  newMemoryJob,
  persistIn,
  recordIn,
  specOf,
  voidIn,
} from "./memory-job.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

/** How long a record lives that is not bound to its request: longer than any submit takes. */
export const UNBOUND_EXPIRY_MS = 60_000;
/** How long a job that gave way to another cannot be written: longer than any command is in flight. */
const VOID_EXPIRY_MS = 600_000;

const createScript = defineScript<
  "fsm" | "payload",
  { job: NewJob },
  readonly ["created", string] | readonly ["duplicate"] | readonly ["void"],
  "spec" | "session_id" | "attempts_max" | "expiry_ms" | "payload_text"
>({
  file: new URL("./lua/create-job.lua", import.meta.url),
  keys: ["fsm", "payload"],
  texts: ["spec", "session_id", "attempts_max", "expiry_ms", "payload_text"],
  args: unchecked(),
  wire: ({ job }) => ({
    spec: writeSpec(job),
    session_id: job.sessionId ?? "",
    attempts_max: String(job.attemptsMax),
    expiry_ms: String(UNBOUND_EXPIRY_MS),
    payload_text: job.payload,
  }),
  reply: uncheckedReply(),
}).inMemory((space, { fsm }, { job }) => {
  if (isVoid(space, fsm)) return ["void"];
  if (jobIn(space, fsm)) return ["duplicate"];
  const nowMs = space.nowMs();
  space.setRecord(fsm, newMemoryJob(specOf(job), job.payload, nowMs), UNBOUND_EXPIRY_MS);
  return ["created", String(nowMs)];
});

const persistScript = defineScript<
  "fsm" | "payload",
  { turn_id: string },
  readonly ["persisted" | "absent"]
>({
  file: new URL("./lua/persist-job.lua", import.meta.url),
  keys: ["fsm", "payload"],
  texts: ["turn_id"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { fsm }, { turn_id }) => {
  const job = jobIn(space, fsm);
  if (!job) return ["absent"];
  if (turn_id !== "") job.turnId = turn_id;
  if (job.state !== "RELEASED") persistIn(space, fsm, job);
  return ["persisted"];
});

const dropScript = defineScript({
  file: new URL("./lua/drop-job.lua", import.meta.url),
  keys: ["fsm", "payload"],
  args: z.object({}),
  reply: z.tuple([z.enum(["dropped", "kept", "absent"])]),
}).inMemory((space, { fsm }) => {
  const job = jobIn(space, fsm);
  if (!job) return ["absent"];
  if (job.persisted) return ["kept"];
  space.delete(fsm);
  return ["dropped"];
});

const voidScript = defineScript({
  file: new URL("./lua/void-job.lua", import.meta.url),
  keys: ["fsm"],
  args: z.object({ expiry_ms: z.int().positive() }),
  reply: z.tuple([z.enum(["void", "exists"])]),
}).inMemory((space, { fsm }, { expiry_ms }) => {
  if (jobIn(space, fsm)) return ["exists"];
  voidIn(space, fsm, expiry_ms);
  return ["void"];
});

type AttemptReply = readonly ["absent"] | readonly ["found", JobState, string | AttemptPlaceNow];

/** Redis replies with the text of it. */
type AttemptPlaceNow = Pick<MemoryJob, "attemptId" | "nodeId" | "endedBy">;

const listenScript = defineScript({
  file: new URL("./lua/listen-job.lua", import.meta.url),
  keys: ["fsm"],
  args: z.object({ instance: z.string(), length_max: z.int().positive() }),
  reply: uncheckedReply<AttemptReply>(),
}).inMemory((space, { fsm }, { instance, length_max }) => {
  const job = jobIn(space, fsm);
  if (!job) return ["absent"];
  const words = `${instance} ${job.listeners}`;
  if (!` ${job.listeners}`.includes(` ${instance} `) && words.length <= length_max)
    job.listeners = words;
  return foundIn(job);
});

interface WantedParts {
  payload: boolean;
  result: boolean;
  /** The result of a job that failed, when it is short. */
  failure: boolean;
  timeline: boolean;
}

const readScript = defineScript<
  JobKey,
  { wanted: Partial<WantedParts> },
  | readonly ["absent"]
  | readonly ["found", string, string, number, ...string[]]
  | readonly ["record", JobRecord],
  "wanted"
>({
  file: new URL("./lua/read-job.lua", import.meta.url),
  keys: ["fsm", "payload", "result", "timeline"],
  texts: ["wanted"],
  args: unchecked(),
  wire: ({ wanted }) => ({
    wanted: `${wanted.payload ? "p" : ""}${wanted.result ? "r" : ""}${wanted.timeline ? "t" : ""}${wanted.failure ? "e" : ""}`,
  }),
  reply: uncheckedReply(),
}).inMemory((space, { fsm }, { wanted }) => {
  const job = jobIn(space, fsm);
  return job ? ["record", recordIn(job, wanted, ERROR_BYTES_MAX)] : ["absent"];
});

/** The Lua file has the same number. */
const ERROR_BYTES_MAX = 8_192;

const readAttemptScript = defineScript({
  file: new URL("./lua/read-attempt.lua", import.meta.url),
  keys: ["fsm"],
  args: unchecked<object>(),
  reply: uncheckedReply<AttemptReply>(),
}).inMemory((space, { fsm }) => {
  const job = jobIn(space, fsm);
  return job ? foundIn(job) : ["absent"];
});

/** `payload` is JSON text, kept beside the record and returned unchanged. */
export interface NewJob extends JobSpec {
  payload: string;
}

/**
 * `created`: with the store's time. `duplicate`: this id has a record already. `void`: another submit found the binding
 * without a record and bound the request to its own job (`voidJob`); this one has to stop.
 */
export type Created =
  | { outcome: "created"; createdMs: number }
  | { outcome: "duplicate" }
  | { outcome: "void" };

/** Step 1 of a submit. The record expires after `UNBOUND_EXPIRY_MS` unless it is persisted or advanced. */
export const createJob = (hot: HotStore, job: NewJob): Promise<Created> =>
  startCreate(hot, job).answer;

/** For steps that depend on it; `isCreated` is their condition. */
export function startCreate(hot: HotStore, job: NewJob): Started<Created> {
  const keys = {
    fsm: jobKeys.fsm(hot.prefix, job.jobId),
    payload: jobKeys.payload(hot.prefix, job.jobId),
  };
  const call = hot.start(createScript, keys, { job });
  const answer = call.reply.then(
    (reply): Created =>
      reply[0] === "created"
        ? { outcome: "created", createdMs: Number(reply[1]) }
        : { outcome: reply[0] },
  );
  return { call, answer };
}

export const isCreated = ({ call }: Started<Created>): Condition => ({
  call,
  at: 0,
  is: "created",
});

/** Step 4, for the job its request is bound to. `absent`: the record expired or gave way; the submit starts over. */
export async function persistJob(
  hot: HotStore,
  jobId: string,
  { turnId }: { turnId?: string | undefined } = {},
): Promise<"persisted" | "absent"> {
  const keys = {
    fsm: jobKeys.fsm(hot.prefix, jobId),
    payload: jobKeys.payload(hot.prefix, jobId),
  };
  const [outcome] = await hot.run(persistScript, keys, { turn_id: turnId ?? "" });
  return outcome;
}

/** Drops a job that lost its request to another. `kept`: the job is the winner after all. */
export async function dropJob(
  hot: HotStore,
  jobId: string,
): Promise<"dropped" | "kept" | "absent"> {
  const keys = {
    fsm: jobKeys.fsm(hot.prefix, jobId),
    payload: jobKeys.payload(hot.prefix, jobId),
  };
  return (await hot.run(dropScript, keys, {}))[0];
}

/** Called before a binding whose job has no record is replaced. `exists`: it has one after all, follow it. */
export async function voidJob(hot: HotStore, jobId: string): Promise<"void" | "exists"> {
  const fsm = jobKeys.fsm(hot.prefix, jobId);
  return (await hot.run(voidScript, { fsm }, { expiry_ms: VOID_EXPIRY_MS }))[0];
}

/** The record, with the requested texts. */
export async function readJob(
  hot: HotStore,
  jobId: string,
  wanted: Partial<WantedParts> = {},
): Promise<JobRecord | undefined> {
  const reply = await hot.run(readScript, keysOfJob(hot.prefix, jobId), { wanted });
  if (reply[0] === "absent") return undefined;
  if (reply[0] === "record") return reply[1];
  const [, payload, result, count, ...rest] = reply;
  const fields = fieldsOf(rest.slice(count));
  const record = recordOf(jobId, fields, { payload, result });
  if (wanted.timeline) {
    const listed = rest.slice(0, count);
    record.timeline = timelineOf(record, { text: fields.get("timeline"), listed });
  }
  return record;
}

/** The state of a job now. */
export interface AttemptNow extends JobAttempt {
  state: JobState;
  nodeId: string | undefined;
  /** The node's own result has ended the job. */
  hasResult: boolean;
}

/** In the order of the argument; `undefined` for a job without a record. */
export async function readAttempts(
  hot: HotStore,
  jobs: readonly { jobId: string }[],
): Promise<Array<AttemptNow | undefined>> {
  return Promise.all(
    jobs.map(async ({ jobId }) => {
      const fsm = jobKeys.fsm(hot.prefix, jobId);
      return attemptOf(jobId, await hot.run(readAttemptScript, { fsm }, {}));
    }),
  );
}

/** Instance ids of up to 128 letters: eight fit, and usually many more. */
const LISTENERS_LENGTH_MAX = 8 * 129;

/**
 * Registers `instanceId` to be notified when the job ends: the instance that ends it gets the listeners from `advance`.
 * Returns the state of the job; if it is FINISHED, its listeners were notified before, and the caller has to read it.
 */
export async function listen(
  hot: HotStore,
  jobId: string,
  instanceId: string,
): Promise<AttemptNow | undefined> {
  const fsm = jobKeys.fsm(hot.prefix, jobId);
  const args = { instance: instanceId, length_max: LISTENERS_LENGTH_MAX };
  return attemptOf(jobId, await hot.run(listenScript, { fsm }, args));
}

const foundIn = (job: MemoryJob): AttemptReply => [
  "found",
  job.state,
  { attemptId: job.attemptId, nodeId: job.nodeId, endedBy: job.endedBy },
];

function attemptOf(jobId: string, reply: AttemptReply): AttemptNow | undefined {
  if (reply[0] === "absent") return undefined;
  const [, state, now] = reply;
  const { attemptId, nodeId, endedBy } = typeof now === "string" ? parseAt(now) : now;
  return { jobId, state, attemptId, nodeId, hasResult: endedBy === "result" };
}

function fieldsOf(pairs: readonly string[]): Map<string, string> {
  const fields = new Map<string, string>();
  for (let at = 0; at < pairs.length; at += 2) fields.set(pairs[at]!, pairs[at + 1]!);
  return fields;
}
