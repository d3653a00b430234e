import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { writeSpec } from "./job-codec.ts";
import { type NewJob, UNBOUND_EXPIRY_MS } from "./job-store.ts";
import { type JobKey, keysOfJob } from "./keys.ts";
import { isVoid, jobIn, newMemoryJob, specOf } from "./memory-job.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

/** A job from its row, at an attempt that the hot store never had. */
export interface RefilledJob {
  job: NewJob;
  attemptId: number;
  countedAttempts: number;
  createdMs: number;
  /** The row is known to have its request: a mark that the job gave way is of a state that was lost. */
  isDecided: boolean;
}

const putScript = defineScript<
  JobKey,
  RefilledJob,
  readonly ["put" | "void" | "same" | "newer"],
  | "spec"
  | "session_id"
  | "attempt"
  | "counted"
  | "attempts_max"
  | "created_ms"
  | "expiry_ms"
  | "over_void"
  | "payload_text"
>({
  file: new URL("./lua/put-job.lua", import.meta.url),
  keys: ["fsm", "payload", "result", "timeline"],
  texts: [
    "spec",
    "session_id",
    "attempt",
    "counted",
    "attempts_max",
    "created_ms",
    "expiry_ms",
    "over_void",
    "payload_text",
  ],
  args: unchecked(),
  wire: ({ job, attemptId, countedAttempts, createdMs, isDecided }) => ({
    spec: writeSpec(job),
    session_id: job.sessionId ?? "",
    attempt: String(attemptId),
    counted: String(countedAttempts),
    attempts_max: String(job.attemptsMax),
    created_ms: String(createdMs),
    expiry_ms: String(UNBOUND_EXPIRY_MS),
    over_void: isDecided ? "1" : "0",
    payload_text: job.payload,
  }),
  reply: uncheckedReply(),
}).inMemory((space, { fsm }, { job, attemptId, countedAttempts, createdMs, isDecided }) => {
  if (!isDecided && isVoid(space, fsm)) return ["void"];
  const former = jobIn(space, fsm);
  if (former && former.attemptId >= attemptId)
    return [former.attemptId === attemptId ? "same" : "newer"];
  const record = newMemoryJob(specOf(job), job.payload, createdMs);
  record.attemptId = attemptId;
  record.countedAttempts = countedAttempts;
  record.attemptMs = record.stateMs = space.nowMs();
  space.setRecord(fsm, record, UNBOUND_EXPIRY_MS);
  return ["put"];
});

/**
 * Writes the record of a job that the hot store lost, or has at an older attempt; it expires unless it is persisted. `void`: the
 * job gave its request to another.
 * `same`: it has this attempt.
 */
export async function putJob(
  hot: HotStore,
  refilled: RefilledJob,
): Promise<"put" | "void" | "same" | "newer"> {
  const keys = keysOfJob(hot.prefix, refilled.job.jobId);
  return (await hot.run(putScript, keys, refilled))[0];
}
