import { expect, test } from "vitest";
import { openTestHot } from "../../../testing/hot-stores.ts";
import { newJob } from "../../../testing/jobs.ts";
import { createManualClock } from "../../../testing/manual-clock.ts";
import { type TrackedJob, trackedJobOf } from "../job.ts";
import { createPendingReports } from "../memory/pending-reports.ts";
import { createTrackedJobs } from "../memory/tracked-jobs.ts";
import type { JobsParts } from "../parts.ts";
import { createJob, readJob } from "../store/job-store.ts";
import { AttemptOutcomes } from "./attempt-outcomes.ts";

/** One job in a store in memory, and the outcomes of its attempts. */
async function scene() {
  const { hot } = await openTestHot("memory");
  const { jobId } = newJob();
  await createJob(hot, newJob({ jobId, attemptsMax: 3 }));
  const job = trackedJobOf((await readJob(hot, jobId))!, { nowMs: 0, storeNowMs: 0 });
  const pauses: number[] = [];
  const placed: TrackedJob[] = [];
  const ignore = () => {};
  const jobs = createTrackedJobs({ clock: createManualClock(), onDue: ignore, onError: ignore });
  const tracked = {
    ...jobs,
    setDeadline: (_: TrackedJob, kind: string, inMs: number) =>
      kind === "back_off" && pauses.push(inMs),
  };
  tracked.track(job);
  const parts = {
    ...{ hot, tracked, instanceId: "i", settings: { retentionMs: 60_000 } },
    clock: { monotonicMs: () => 0 },
    log: { error: ignore },
    metrics: { retried: ignore, finished: ignore },
    tracing: { attemptEnded: ignore, jobEnded: ignore },
  };
  const outcomes = new AttemptOutcomes(
    parts as unknown as JobsParts,
    {
      slots: { free: async () => {} },
      turns: { placedOrEnded: ignore },
      results: { announceIf: () => undefined, deliver: async () => "out" },
      retention: { bytesOf: () => 0, ended: async () => {} },
      pendingReports: createPendingReports(),
      durable: {
        raise: async () => "raised",
        end: async () => "ended",
        recordFromRow: async () => undefined,
      },
    },
    (step) => {
      if (step.do === "place") placed.push(step.job);
    },
  );
  return { hot, job, outcomes, pauses, placed, tracked };
}

test("an uncounted attempt is repeated at once only the first time, then after a growing back-off", async () => {
  const { hot, job, outcomes, pauses, placed } = await scene();
  let attempts = 0;
  for (; !(await readJob(hot, job.jobId))?.outcome; attempts++)
    await outcomes.retry(job, "inbox_full");
  expect(attempts).toBe(13);
  expect(placed).toHaveLength(1);
  expect(pauses.slice(0, 5)).toEqual([100, 200, 400, 800, 1_600]);
  // A job is never ended by them within moments.
  expect(pauses.reduce((sum, pauseMs) => sum + pauseMs, 0)).toBeGreaterThan(10_000);
  const record = await readJob(hot, job.jobId, { result: true });
  expect(record).toMatchObject({ outcome: "attempts_exhausted", countedAttempts: 0 });
  expect(record?.result).toContain("in each of its 13 attempts");
});

test("a job is placed at the end of its back-off, and released when it is cancelled", async () => {
  const { job, outcomes, placed, tracked } = await scene();
  await outcomes.retry(job, "inbox_full");
  await outcomes.retry(job, "inbox_full");
  expect(placed).toHaveLength(1);
  outcomes.endBackOff(job);
  expect(placed).toHaveLength(2);
  await outcomes.cancel(job);
  expect(tracked.get(job.jobId)).toBeUndefined();
});
