import type { Service } from "../../kernel/service.ts";
import type { PostgresStore } from "../../store/db.ts";
import { createTableRefresh } from "../../store/table-refresh.ts";
import type { Adoption } from "../flow/adoption.ts";
import type { Next } from "../flow/step.ts";
import type { JobsParts } from "../parts.ts";
import { logUnlessStoreDown } from "../store-errors.ts";
import type { DurableJobs } from "./durable-jobs.ts";
import type { RowWithPayload } from "./row-store.ts";

const INTERVAL_MS = 1_000;
const MARKED_MAX = 1_000;
const TAKEN_MAX = 500;

/**
 * Opens jobs that wait in the table when they are due: those with a `run_at`, and those that SQL has enqueued. Every instance
 * does it, woken by NOTIFY and every second. A row is opened by one of them; if that instance stops before it has written the
 * record, the comparison of open rows finds the job.
 */
export function createDueJobs(
  {
    db,
    rows,
    tracked,
    settings,
    clock,
    log,
  }: Pick<JobsParts, "rows" | "tracked" | "settings" | "clock" | "log"> & {
    db: Pick<PostgresStore, "listen">;
  },
  { durable, adopt }: { durable: Pick<DurableJobs, "open">; adopt: Adoption["adopt"] },
  next: Next,
): Service {
  const onReadError = logUnlessStoreDown(
    log,
    { event: "jobs.not-opened" },
    "could not open due jobs; will retry",
  );

  let isLimitWritten = false;

  async function openDue(): Promise<void> {
    if (!isLimitWritten) await rows.writeLimit(settings.payloadBytesMax);
    isLimitWritten = true;
    while (await rows.markDue(MARKED_MAX));
    for (const pool of await rows.poolsWithDue()) await openPool(pool);
  }

  async function openPool(pool: string): Promise<void> {
    for (;;) {
      const room = settings.queueMax - tracked.waiting.sizeOf(pool);
      const limit = Math.min(room, TAKEN_MAX);
      if (limit <= 0) return;
      const taken = await rows.takeDue({ pool, limit });
      await Promise.all(taken.map(place));
      if (taken.length < limit) return;
    }
  }

  async function place(row: RowWithPayload): Promise<void> {
    if (!(await durable.open(row))) return;
    const job = await adopt(row.jobId);
    if (job) void next({ do: "place", job });
  }

  return createTableRefresh({
    ...{ db, clock, onReadError },
    channel: "tenure_job",
    intervalMs: INTERVAL_MS,
    read: openDue,
    onListenError: (error) =>
      log.warn(
        { event: "jobs.not-woken", error },
        "could not listen for due jobs; reading the table every second only",
      ),
  });
}
