import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { inBatches, split } from "./batches.ts";
import { dueShard, jobKeys } from "./keys.ts";
import { trusted, trustedReply } from "./unchecked.ts";

/** How far ahead an entry moves when it is taken: after that anybody may take it again. */
export const DUE_HOLD_MS = 5_000;

const enterScript = defineScript<
  "due",
  Record<"jobs" | "in_ms" | "only_listed", string>,
  readonly ["entered"]
>({
  file: new URL("./lua/enter-due.lua", import.meta.url),
  keys: ["due"],
  texts: ["jobs", "in_ms", "only_listed"],
  args: trusted(),
  reply: trustedReply(),
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
  args: trusted(),
  reply: trustedReply(),
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
  args: trusted(),
  reply: trustedReply(),
}).inMemory((space, { due }, { jobs }) => {
  const scores = space.scores(due);
  return ["left", split(jobs).filter((job) => scores.delete(job)).length];
});

/** When somebody has to look at a job, in milliseconds from now. */
export interface DueEntry {
  jobId: string;
  inMs: number;
}

/** Step 2 of a submit, and every later time somebody has to look again. */
export async function enterDue(hot: HotStore, entries: readonly DueEntry[]): Promise<void> {
  await schedule(hot, entries, false);
}

/** As `enterDue`, for jobs that are still in the index: one that has left is not brought back. */
export async function rescheduleDue(hot: HotStore, entries: readonly DueEntry[]): Promise<void> {
  await schedule(hot, entries, true);
}

async function schedule(
  hot: HotStore,
  entries: readonly DueEntry[],
  onlyListed: boolean,
): Promise<void> {
  await eachShard(
    entries,
    ({ jobId }) => jobId,
    (shard, batch) =>
      hot.run(
        enterScript,
        { due: jobKeys.due(hot.prefix, shard) },
        {
          jobs: batch.map(({ jobId }) => jobId).join(" "),
          in_ms: batch.map(({ inMs }) => Math.round(Math.max(0, inMs))).join(" "),
          only_listed: onlyListed ? "1" : "0",
        },
      ),
  );
}

export interface DueTaken {
  jobIds: string[];
  /** Until the next entry of this shard is due; `undefined` when it is empty. */
  nextInMs: number | undefined;
}

/** Each entry taken is held for `DUE_HOLD_MS`; whoever takes it must move it, leave it out, or let it come again. */
export async function takeDue(
  hot: HotStore,
  shard: number,
  { countMax }: { countMax: number },
): Promise<DueTaken> {
  const due = jobKeys.due(hot.prefix, shard);
  const reply = await hot.run(takeScript, { due }, { count: countMax, hold_ms: DUE_HOLD_MS });
  const [, nextInMs, ...jobIds] = reply;
  return { jobIds, nextInMs: nextInMs < 0 ? undefined : nextInMs };
}

/** Says how many were in the index: the others have left before. */
export async function leaveDue(hot: HotStore, jobIds: readonly string[]): Promise<number> {
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

/** All shards at once: they are different keys, and nobody waits for one because of another. */
async function eachShard<T, Reply>(
  things: readonly T[],
  jobIdOf: (thing: T) => string,
  run: (shard: number, batch: T[]) => Promise<Reply>,
): Promise<Reply[]> {
  const shards = new Map<number, T[]>();
  for (const thing of things) {
    const shard = dueShard(jobIdOf(thing));
    const batch = shards.get(shard);
    if (batch) batch.push(thing);
    else shards.set(shard, [thing]);
  }
  const calls = [...shards].flatMap(([shard, batch]) =>
    inBatches(batch).map((part) => run(shard, part)),
  );
  return Promise.all(calls);
}
