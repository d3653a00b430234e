import type { Job, JobTimelineEntry } from "@tenure/protocol";

/** Whether a job has an outcome. Its state still changes once, when its slot is released. */
export const hasEnded = ({ outcome }: Job): boolean => outcome !== undefined;

/** Steps added since `before`. A timeline is append-only. */
export function newSteps(job: Job, before: Job | undefined): JobTimelineEntry[] {
  return job.timeline.slice(before?.timeline.length ?? 0);
}

/** Jobs remembered for comparison: more than one page, so that a busy fleet does not repeat old changes. */
const KNOWN_MAX = 2_000;

/** Creates a function that returns the jobs of a page that are new or changed, oldest first. */
export function createWatch(): (page: readonly Job[]) => Job[] {
  const known = new Map<string, string>();
  return (page) => {
    const changed = page.filter((job) => known.get(job.job_id) !== shownOf(job)).toReversed();
    for (const job of changed) {
      known.delete(job.job_id);
      known.set(job.job_id, shownOf(job));
    }
    for (const id of [...known.keys()].slice(0, Math.max(0, known.size - KNOWN_MAX)))
      known.delete(id);
    return changed;
  };
}

/** The displayed fields. `RELEASED` after `FINISHED` is not a visible change. */
const shownOf = ({ state, outcome, attempt_id, node_id }: Job): string =>
  [outcome ?? state, attempt_id, outcome === undefined ? node_id : ""].join(" ");
