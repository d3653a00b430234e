import type { Condition } from "../../store/call.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { inBatches, split } from "./batches.ts";
import { jobKeys } from "./keys.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

/** Jobs that a list can show. Older ones are found by their id alone, as long as they are kept. */
export const RECENT_MAX = 10_000;
/** Entries read in one call. */
const PAGE_MAX = 500;

const addScript = defineScript<
  "recent",
  Record<"jobs" | "length_max" | "keep_ms", string>,
  readonly ["added"]
>({
  file: new URL("./lua/add-recent.lua", import.meta.url),
  keys: ["recent"],
  texts: ["jobs", "length_max", "keep_ms"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { recent }, { jobs, length_max, keep_ms }) => {
  const listed = space.scores(recent);
  for (const job of split(jobs)) listed.set(job.replace(":", " "), 0);
  // Ids of one instance are in order, so the first entry is the oldest.
  if (length_max === "") return ["added"];
  const surplus = listed.size - Number(length_max);
  const oldest = listed.keys();
  for (let count = 0; count < surplus; count++) listed.delete(oldest.next().value!);
  space.expire(recent, Number(keep_ms));
  return ["added"];
});

const listScript = defineScript<
  "recent",
  { before: string; count: number },
  readonly ["listed", ...string[]]
>({
  file: new URL("./lua/list-recent.lua", import.meta.url),
  keys: ["recent"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { recent }, { before, count }) => {
  const listed = space.has(recent) ? [...space.scores(recent).keys()] : [];
  const older = before === "" ? listed : listed.filter((job) => job < before);
  return ["listed", ...older.sort().reverse().slice(0, count)];
});

export interface RecentJob {
  jobId: string;
  tenant: string;
}

/** A job that is listed only if the condition holds. */
export interface NewRecentJob extends RecentJob {
  onlyIf?: Condition | undefined;
}

/** `trims`: also drops the oldest above the bound and moves the expiry of the list. */
export async function addRecent(
  hot: HotStore,
  jobs: readonly NewRecentJob[],
  { keepMs, trims = true }: { keepMs: number; trims?: boolean },
): Promise<void> {
  const recent = jobKeys.recent(hot.prefix);
  await Promise.all(
    inBatches(jobs).map((batch) => {
      const each = batch.map(({ onlyIf }) => onlyIf);
      const args = {
        jobs: batch.map(wordOf).join(" "),
        length_max: trims ? String(RECENT_MAX) : "",
        keep_ms: String(keepMs),
      };
      return each.some((condition) => condition)
        ? hot.startIf({ words: { of: "jobs", each } }, addScript, { recent }, args).reply
        : hot.run(addScript, { recent }, args);
    }),
  );
}

/** Newest first, of one tenant or of all, older than `before`. Some may have no record any more. */
export async function listRecent(
  hot: HotStore,
  {
    tenant,
    limit,
    before,
  }: { tenant?: string | undefined; limit: number; before?: string | undefined },
): Promise<string[]> {
  const found: string[] = [];
  // A job's id alone sorts before the id with its tenant behind it.
  let from = before ?? "";
  while (found.length < limit) {
    const page = await readPage(hot, from);
    for (const job of page) {
      if (found.length < limit && (!tenant || job.tenant === tenant)) found.push(job.jobId);
    }
    const last = page.at(-1);
    if (!last || page.length < PAGE_MAX) break;
    from = last.jobId;
  }
  return found;
}

async function readPage(hot: HotStore, before: string): Promise<RecentJob[]> {
  const recent = jobKeys.recent(hot.prefix);
  const [, ...members] = await hot.run(listScript, { recent }, { before, count: PAGE_MAX });
  return members.map((member) => {
    const space = member.indexOf(" ");
    return { jobId: member.slice(0, space), tenant: member.slice(space + 1) };
  });
}

/** In the list a space stands between them; here it separates the words that have a condition each. */
const wordOf = ({ jobId, tenant }: RecentJob): string => `${jobId}:${tenant}`;
