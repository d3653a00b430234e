import type { Job, JobOutcome, JobState } from "@tenure/protocol";
import { useMemo } from "preact/hooks";
import { call } from "../api.ts";
import { onChange, onConnect } from "../live.ts";
import { throttle } from "../resource.ts";
import { type FeedOptions, type FeedSource, useFeed } from "./feed.ts";

export interface JobFilter {
  state?: JobState;
  outcome?: JobOutcome;
  pool?: string;
  session_id?: string;
}

/** Small, because a page contains results, which may be large. */
const PAGE_LIMIT = 100;
/** Jobs kept in the page; the server has the rest. */
const JOBS_MAX = 2_000;
/** Shortest interval between two reads of the newest page. */
const REREAD_MS = 1_000;
/** The stream does not report jobs of other instances, so the list is also polled. */
const POLL_MS = 2_000;

/**
 * The newest matching jobs. The newest page is read again at every change: the cost does not depend on the rate of jobs,
 * and the filters of the server are not repeated here.
 */
export function useJobs(filter: JobFilter) {
  const options = useMemo(() => optionsOf(filter), [filter]);
  const { items: jobs, ...feed } = useFeed(options);
  return { ...feed, jobs };
}

const optionsOf = (filter: JobFilter): FeedOptions<Job> => ({
  readPage: (cursor) => call("listJobs", { query: { ...filter, limit: PAGE_LIMIT, cursor } }),
  mergeFirst: (known, page) => newestFirst(page, olderThan(known, page)),
  merge: newestFirst,
  itemsMax: JOBS_MAX,
  start,
});

function start(read: () => void): FeedSource {
  let isStopped = false;
  const refresh = throttle(REREAD_MS, () => {
    if (!isStopped && document.visibilityState === "visible") read();
  });
  const timer = setInterval(refresh, POLL_MS);
  const ends = [onChange("jobs", refresh), onConnect(refresh), () => clearInterval(timer)];
  refresh();
  return {
    refresh,
    stop() {
      isStopped = true;
      for (const end of ends) end();
    },
  };
}

/** Known jobs older than the page. Within its range, the page replaces them. */
function olderThan(known: Job[], page: Job[]): Job[] {
  const last = page.at(-1);
  return last ? known.filter((job) => job.created_at < last.created_at) : [];
}

function newestFirst(...lists: Job[][]): Job[] {
  const all = new Map(lists.flat().map((job) => [job.job_id, job]));
  return [...all.values()]
    .sort((a, b) => (a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : 0))
    .slice(0, JOBS_MAX);
}
