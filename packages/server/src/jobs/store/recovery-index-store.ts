import type { Condition } from "../../store/call.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { inBatches, split } from "./batches.ts";
import { jobKeys, recoveryShard } from "./keys.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

/** How far ahead an entry moves when it is taken. After that any instance may take it again. */
export const RETAKE_AFTER_MS = 5_000;

const enterScript = defineScript<
  "due",
  Record<"jobs" | "in_ms" | "only_listed", string>,
  readonly ["entered"]
>({
  file: new URL("./lua/enter-due.lua", import.meta.url),
  keys: ["due"],
  texts: ["jobs", "in_ms", "only_listed"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { due }, { jobs, in_ms, only_listed }) => {
  const scores = space.scores(due);
  const delays = split(in_ms).map(Number);
  for (const [index, job] of split(jobs).entries()) {
    if (only_listed === "0" || scores.has(job)) scores.set(job, space.nowMs() + delays[index]!);
  }
  return ["entered"];
});

const takeScript = defineScript<
  "due",
  { count: number; hold_ms: number },
  readonly ["taken", number, ...string[]]
>({
  file: new URL("./lua/take-due.lua", import.meta.url),
  keys: ["due"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { due }, { count, hold_ms }) => {
  if (!space.has(due)) return ["taken", -1];
  const scores = space.scores(due);
  const now = space.nowMs();
  const dueNow = [...scores].filter(([, atMs]) => atMs <= now).sort((a, b) => a[1] - b[1]);
  const taken = dueNow.slice(0, count).map(([job]) => job);
  for (const job of taken) scores.set(job, now + hold_ms);
  const firstMs = Math.min(...scores.values());
  return ["taken", scores.size === 0 ? -1 : Math.max(0, firstMs - now), ...taken];
});

const leaveScript = defineScript<"due", { jobs: string }, readonly ["left", number]>({
  file: new URL("./lua/leave-due.lua", import.meta.url),
  keys: ["due"],
  texts: ["jobs"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { due }, { jobs }) => {
  const scores = space.scores(due);
  return ["left", split(jobs).filter((job) => scores.delete(job)).length];
});

/** When an instance has to check a job, in milliseconds from now. */
export interface RecoveryEntry {
  jobId: string;
  inMs: number;
  /** Called when the call is started, with the condition that the job was entered. */
  onStarted?: ((entered: Condition) => void) | undefined;
}

/** Step 2 of a submit: enters jobs, or moves them. */
export async function enterRecoveryIndex(
  hot: HotStore,
  entries: readonly RecoveryEntry[],
): Promise<void> {
  await schedule(hot, entries, false);
}

/** Moves jobs that are in the index. A job that has left stays out. */
export async function rescheduleRecovery(
  hot: HotStore,
  entries: readonly RecoveryEntry[],
): Promise<void> {
  await schedule(hot, entries, true);
}

async function schedule(
  hot: HotStore,
  entries: readonly RecoveryEntry[],
  onlyListed: boolean,
): Promise<void> {
  await eachShard(
    entries,
    ({ jobId }) => jobId,
    (shard, batch) => {
      const call = hot.start(
        enterScript,
        { due: jobKeys.due(hot.prefix, shard) },
        {
          jobs: batch.map(({ jobId }) => jobId).join(" "),
          in_ms: batch.map(({ inMs }) => Math.round(Math.max(0, inMs))).join(" "),
          only_listed: onlyListed ? "1" : "0",
        },
      );
      for (const { onStarted } of batch) onStarted?.({ call, at: 0, is: "entered" });
      return call.reply;
    },
  );
}

export interface TakenEntries {
  jobIds: string[];
  /** Until the next entry of this shard is overdue; `undefined` if the shard is empty. */
  nextInMs: number | undefined;
}

/** Takes overdue entries. Each comes again after `RETAKE_AFTER_MS` unless the caller moves or removes it. */
export async function takeOverdue(
  hot: HotStore,
  shard: number,
  { countMax }: { countMax: number },
): Promise<TakenEntries> {
  const due = jobKeys.due(hot.prefix, shard);
  const reply = await hot.run(takeScript, { due }, { count: countMax, hold_ms: RETAKE_AFTER_MS });
  const [, nextInMs, ...jobIds] = reply;
  return { jobIds, nextInMs: nextInMs < 0 ? undefined : nextInMs };
}

/** Removes jobs, and returns how many of them were in the index. */
export async function leaveRecoveryIndex(
  hot: HotStore,
  jobIds: readonly string[],
): Promise<number> {
  const replies = await eachShard(
    jobIds,
    (jobId) => jobId,
    (shard, jobs) => {
      const due = jobKeys.due(hot.prefix, shard);
      return hot.run(leaveScript, { due }, { jobs: jobs.join(" ") });
    },
  );
  return replies.reduce((sum, [, left]) => sum + left, 0);
}

/** All shards at once: they are different keys. */
async function eachShard<T, Reply>(
  things: readonly T[],
  jobIdOf: (thing: T) => string,
  run: (shard: number, batch: T[]) => Promise<Reply>,
): Promise<Reply[]> {
  const shards = new Map<number, T[]>();
  for (const thing of things) {
    const shard = recoveryShard(jobIdOf(thing));
    const batch = shards.get(shard);
    if (batch) batch.push(thing);
    else shards.set(shard, [thing]);
  }
  const calls = [...shards].flatMap(([shard, batch]) =>
    inBatches(batch).map((part) => run(shard, part)),
  );
  return Promise.all(calls);
}
