import type { Job, JobTimelineEntry } from "@tenure/protocol";

/** A job that has ended changes once more, when its slot is free. */
export const hasEnded = ({ outcome }: Job): boolean => outcome !== undefined;

/** Steps that were not there the last time. A timeline only grows. */
export function newSteps(job: Job, before: Job | undefined): JobTimelineEntry[] {
  return job.timeline.slice(before?.timeline.length ?? 0);
}

/** Jobs kept to be compared with: more than one page, so that a busy fleet does not tell old news as new. */
const KNOWN_MAX = 2_000;

/** Tells, look after look, which jobs are new or have moved. Oldest first. */
export function createWatch(): (page: readonly Job[]) => Job[] {
  const known = new Map<string, string>();
  return (page) => {
    const moved = page.filter((job) => known.get(job.job_id) !== faceOf(job)).toReversed();
    for (const job of moved) {
      known.delete(job.job_id);
      known.set(job.job_id, faceOf(job));
    }
    for (const id of [...known.keys()].slice(0, Math.max(0, known.size - KNOWN_MAX)))
      known.delete(id);
    return moved;
  };
}

/** What a line shows of it: `RELEASED` after `FINISHED` is no news. */
const faceOf = ({ state, outcome, attempt_id, node_id }: Job): string =>
  [outcome ?? state, attempt_id, outcome === undefined ? node_id : ""].join(" ");
