import type { Condition } from "../../store/call.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { inBatches, split } from "./batches.ts";
import { jobKeys } from "./keys.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

/** Entries of one session. An older result is still in its record; a client that submits the request again gets it. */
export const UNDELIVERED_MAX = 10_000;

const addScript = defineScript<
  "undelivered",
  Record<"jobs" | "length_max" | "keep_ms", string>,
  readonly ["added", number]
>({
  file: new URL("./lua/add-undelivered.lua", import.meta.url),
  keys: ["undelivered"],
  texts: ["jobs", "length_max", "keep_ms"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { undelivered }, { jobs, length_max, keep_ms }) => {
  const noted = space.scores(undelivered);
  for (const job of split(jobs)) if (!noted.has(job)) noted.set(job, space.nowMs());
  space.expire(undelivered, Number(keep_ms));
  const surplus = Math.max(0, noted.size - Number(length_max));
  for (const job of [...noted.keys()].slice(0, surplus)) noted.delete(job);
  return ["added", surplus];
});

const ackScript = defineScript<"undelivered", { jobs: string }, readonly ["acknowledged", number]>({
  file: new URL("./lua/ack-undelivered.lua", import.meta.url),
  keys: ["undelivered"],
  texts: ["jobs"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { undelivered }, { jobs }) => {
  const noted = space.scores(undelivered);
  return ["acknowledged", split(jobs).filter((job) => noted.delete(job)).length];
});

const listScript = defineScript<"undelivered", { count: number }, readonly ["listed", ...string[]]>(
  {
    file: new URL("./lua/list-undelivered.lua", import.meta.url),
    keys: ["undelivered"],
    args: unchecked(),
    reply: uncheckedReply(),
  },
).inMemory((space, { undelivered }, { count }) => {
  if (!space.has(undelivered)) return ["listed"];
  return ["listed", ...[...space.scores(undelivered).keys()].slice(0, count)];
});

/**
 * Adds results that a session has not acknowledged. Read the session's owner after it; a session that connects writes its
 * owner and then lists: one of the two always sees the other. Returns how many old entries were removed.
 */
export async function addUndelivered(
  hot: HotStore,
  sessionId: string,
  jobIds: readonly string[],
  { keepMs }: { keepMs: number },
): Promise<number> {
  const undelivered = jobKeys.undelivered(hot.prefix, sessionId);
  const replies = await Promise.all(
    inBatches(jobIds).map((jobs) =>
      hot.run(
        addScript,
        { undelivered },
        {
          jobs: jobs.join(" "),
          length_max: String(UNDELIVERED_MAX),
          keep_ms: String(keepMs),
        },
      ),
    ),
  );
  return replies.reduce((sum, reply) => sum + reply[1], 0);
}

/** Adds one result on conditions, in the same order. Returns the condition that it was added. */
export function addUndeliveredIf(
  hot: HotStore,
  when: { all: readonly Condition[] },
  { sessionId, jobId, keepMs }: { sessionId: string; jobId: string; keepMs: number },
): Condition {
  const undelivered = jobKeys.undelivered(hot.prefix, sessionId);
  const args = { jobs: jobId, length_max: String(UNDELIVERED_MAX), keep_ms: String(keepMs) };
  const call = hot.startIf(when, addScript, { undelivered }, args);
  call.reply.catch(() => {}); // then the condition does not hold
  return { call, at: 0, is: "added" };
}

/** Returns how many of them were in the set: the others were acknowledged before. */
export async function ackUndelivered(
  hot: HotStore,
  sessionId: string,
  jobIds: readonly string[],
): Promise<number> {
  const undelivered = jobKeys.undelivered(hot.prefix, sessionId);
  const replies = await Promise.all(
    inBatches(jobIds).map((jobs) => hot.run(ackScript, { undelivered }, { jobs: jobs.join(" ") })),
  );
  return replies.reduce((sum, reply) => sum + reply[1], 0);
}

/** Oldest first. */
export async function listUndelivered(
  hot: HotStore,
  sessionId: string,
  countMax: number,
): Promise<string[]> {
  const undelivered = jobKeys.undelivered(hot.prefix, sessionId);
  const [, ...jobs] = await hot.run(listScript, { undelivered }, { count: countMax });
  return jobs;
}
