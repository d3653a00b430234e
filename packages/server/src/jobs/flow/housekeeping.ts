import type { TrackedJobs } from "../memory/tracked-jobs.ts";
import type { JobsParts } from "../parts.ts";
import { rescheduleRecovery } from "../store/recovery-index-store.ts";

/** Sets the gauges of tracked and waiting jobs. */
export function observeJobs({
  tracked,
  metrics,
  storeClock,
}: Pick<JobsParts, "tracked" | "metrics" | "storeClock">): void {
  const oldestMs = tracked.waiting.oldestMs();
  const waitMs = oldestMs === undefined ? 0 : storeClock.nowMs() - oldestMs;
  metrics.observed({
    waiting: tracked.waiting.size(),
    oldestWaitSeconds: Math.max(0, waitMs / 1_000),
    live: tracked.size(),
  });
}

export function openJobsOf(
  tracked: TrackedJobs,
  tenants: readonly string[],
): { waiting: number; running: number } {
  const open = tenants.reduce((sum, tenant) => sum + tracked.openOf(tenant), 0);
  let waiting = 0;
  for (const { tenant } of tracked.waiting.all()) if (tenants.includes(tenant)) waiting += 1;
  return { waiting, running: Math.max(0, open - waiting) };
}

/** At a stop: the waiting jobs of this instance are overdue at once, so that another instance adopts them. */
export async function handOverWaiting({
  hot,
  tracked,
}: Pick<JobsParts, "hot" | "tracked">): Promise<void> {
  const waiting = [...tracked.values()].filter(({ state }) => state === "CREATED");
  await rescheduleRecovery(
    hot,
    waiting.map(({ jobId }) => ({ jobId, inMs: 0 })),
  );
}
