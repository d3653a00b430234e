import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { writeSpec } from "./job-codec.ts";
import type { NewJob } from "./job-store.ts";
import { type JobKey, keysOfJob } from "./keys.ts";
import { jobIn, newMemoryJob, persistIn, specOf } from "./memory-job.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

/** A job from its row, at an attempt that the hot store never had. */
export interface RefilledJob {
  job: NewJob;
  attemptId: number;
  countedAttempts: number;
  createdMs: number;
}

const putScript = defineScript<
  JobKey,
  RefilledJob,
  readonly ["put" | "same" | "newer"],
  "spec" | "session_id" | "attempt" | "counted" | "attempts_max" | "created_ms" | "payload_text"
>({
  file: new URL("./lua/put-job.lua", import.meta.url),
  keys: ["fsm", "payload", "result", "timeline"],
  texts: ["spec", "session_id", "attempt", "counted", "attempts_max", "created_ms", "payload_text"],
  args: unchecked(),
  wire: ({ job, attemptId, countedAttempts, createdMs }) => ({
    spec: writeSpec(job),
    session_id: job.sessionId ?? "",
    attempt: String(attemptId),
    counted: String(countedAttempts),
    attempts_max: String(job.attemptsMax),
    created_ms: String(createdMs),
    payload_text: job.payload,
  }),
  reply: uncheckedReply(),
}).inMemory((space, { fsm }, { job, attemptId, countedAttempts, createdMs }) => {
  const former = jobIn(space, fsm);
  if (former && former.attemptId >= attemptId)
    return [former.attemptId === attemptId ? "same" : "newer"];
  const record = newMemoryJob(specOf(job), job.payload, createdMs);
  record.attemptId = attemptId;
  record.countedAttempts = countedAttempts;
  record.attemptMs = record.stateMs = space.nowMs();
  space.setRecord(fsm, record, Number.POSITIVE_INFINITY);
  persistIn(space, fsm, record);
  return ["put"];
});

/** Writes the record of a job that the hot store lost, or has at an older attempt. `same`: it has this attempt. */
export async function putJob(
  hot: HotStore,
  refilled: RefilledJob,
): Promise<"put" | "same" | "newer"> {
  const keys = keysOfJob(hot.prefix, refilled.job.jobId);
  return (await hot.run(putScript, keys, refilled))[0];
}
