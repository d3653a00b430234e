import type { Job, JobOutcome, JobState } from "@tenure/protocol";
import { useEffect, useState } from "preact/hooks";
import { type ApiError, call } from "../api.ts";
import { onChange, onConnect } from "../live.ts";
import { asApiError, throttle } from "../resource.ts";

export interface JobFilter {
  state?: JobState;
  outcome?: JobOutcome;
  pool?: string;
  session_id?: string;
}

/** A page carries results, which may be large. */
const PAGE_LIMIT = 100;
/** A list nobody scrolls to the end of; the server keeps the rest. */
const JOBS_MAX = 2_000;
/** However many jobs a second there are, the newest page is read this often at most. */
const REREAD_MS = 1_000;
/** Jobs of other instances are told of by nobody here. */
const POLL_MS = 2_000;

interface Feed {
  jobs: Job[];
  cursor: string | undefined;
  isRead: boolean;
  error: ApiError | undefined;
}

const UNREAD: Feed = { jobs: [], cursor: undefined, isRead: false, error: undefined };

/**
 * The newest jobs that fit, kept up by reading the newest page again: that costs the same at one job a second and at a
 * thousand, and needs no second copy of the server's filters here.
 */
export function useJobs(filter: JobFilter) {
  const [feed, setFeed] = useState<Feed>(UNREAD);
  const [refresh, setRefresh] = useState<() => void>(() => () => {});
  useEffect(() => {
    let isLeft = false;
    setFeed(UNREAD);
    const read = async (): Promise<void> => {
      try {
        const page = await call("listJobs", { query: { ...filter, limit: PAGE_LIMIT } });
        if (isLeft) return;
        setFeed((known) => ({
          ...known,
          isRead: true,
          error: undefined,
          cursor: known.isRead ? known.cursor : (page.next_cursor ?? undefined),
          jobs: newestFirst(page.items, olderThan(known.jobs, page.items)),
        }));
      } catch (error) {
        if (!isLeft) setFeed((known) => ({ ...known, error: asApiError(error) }));
      }
    };
    const reread = throttle(REREAD_MS, () => {
      if (!isLeft && document.visibilityState === "visible") void read();
    });
    setRefresh(() => reread);
    const timer = setInterval(reread, POLL_MS);
    const ends = [onChange("jobs", reread), onConnect(reread), () => clearInterval(timer)];
    reread();
    return () => {
      isLeft = true;
      for (const end of ends) end();
    };
  }, [filter]);

  const { cursor } = feed;
  const older =
    cursor === undefined || feed.jobs.length >= JOBS_MAX
      ? undefined
      : async (): Promise<void> => {
          try {
            const page = await call("listJobs", {
              query: { ...filter, limit: PAGE_LIMIT, cursor },
            });
            setFeed((known) => ({
              ...known,
              cursor: page.next_cursor ?? undefined,
              jobs: newestFirst(known.jobs, page.items),
            }));
          } catch (error) {
            setFeed((known) => ({ ...known, error: asApiError(error) }));
          }
        };
  return { ...feed, older, refresh };
}

/** What was read before and lies behind the page that was read now; within it, the page is right. */
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
