import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { inBatches } from "./batches.ts";
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
  for (const job of jobs.split("\n")) listed.set(job, 0);
  // Ids of one instance are in order, so the first entry is the oldest.
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

export async function addRecent(
  hot: HotStore,
  jobs: readonly RecentJob[],
  { keepMs }: { keepMs: number },
): Promise<void> {
  const recent = jobKeys.recent(hot.prefix);
  await Promise.all(
    inBatches(jobs).map((batch) =>
      hot.run(
        addScript,
        { recent },
        {
          jobs: batch.map(memberOf).join("\n"),
          length_max: String(RECENT_MAX),
          keep_ms: String(keepMs),
        },
      ),
    ),
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

const memberOf = ({ jobId, tenant }: RecentJob): string => `${jobId} ${tenant}`;
