import { failpoint } from "#failpoint";
import { type AttemptPlace, isAt, stateLimitMs, type TrackedJob, trackedJobOf } from "../job.ts";
import type { NodeConnection } from "../memory/connections.ts";
import type { JobsParts } from "../parts.ts";
import { readJob } from "../store/job-store.ts";

/** Jobs from their records. */
export interface Adoption {
  /** Reads a job without tracking it. */
  load(jobId: string): Promise<TrackedJob | undefined>;
  /**
   * Reads a job and tracks it on this instance. Returns the existing entry if its attempt and state are current; returns
   * `undefined` if the job has ended, is not `at` this attempt and node, or `node` has disconnected meanwhile (then the
   * disconnect handler retries its jobs).
   */
  adopt(jobId: string, at?: AttemptPlace, node?: NodeConnection): Promise<TrackedJob | undefined>;
}

export function createAdoption({
  hot,
  clock,
  tracked,
  connections,
  storeClock,
}: Pick<JobsParts, "hot" | "clock" | "tracked" | "connections" | "storeClock">): Adoption {
  const times = () => ({ nowMs: clock.monotonicMs(), storeNowMs: storeClock.nowMs() });
  return {
    async load(jobId) {
      const record = await readJob(hot, jobId);
      return record && trackedJobOf(record, times());
    },
    async adopt(jobId, at, node) {
      const record = await readJob(hot, jobId, { payload: true });
      await failpoint("take-up.after-read");
      const known = tracked.get(jobId);
      if (!record || record.outcome || (at && !isAt(record, at))) return undefined;
      if (node && connections.node(node.nodeId) !== node) return undefined;
      if (known && known.attemptId === record.attemptId && known.state === record.state)
        return known;
      const now = times();
      const job = trackedJobOf(record, now);
      tracked.track(job);
      const limitMs = stateLimitMs(record);
      const sinceMs = record.state === "CREATED" ? record.attemptMs : record.stateMs;
      if (limitMs !== undefined)
        tracked.setDeadline(job, "state", Math.max(0, sinceMs + limitMs - now.storeNowMs));
      return job;
    },
  };
}
