import { expect, test } from "vitest";
import { openTestHot } from "../../../testing/hot-stores.ts";
import { newJob } from "../../../testing/jobs.ts";
import type { JobsContext } from "../context.ts";
import { createBook, type LiveJob, liveJobOf } from "../memory/tracked-jobs.ts";
import { createWaitingRoom } from "../memory/wait-queue.ts";
import { createJob, readJob } from "../store/job-store.ts";
import { BACK_OFF_ALARM, createEndings } from "./attempt-outcomes.ts";

/** One job in a store in memory, and what its endings do with it. */
async function scene() {
  const { hot } = await openTestHot("memory");
  const { jobId } = newJob();
  await createJob(hot, newJob({ jobId, attemptsMax: 3 }));
  const job = liveJobOf((await readJob(hot, jobId))!, { nowMs: 0, storeNowMs: 0 });
  const book = createBook();
  book.add(job);
  const pauses: number[] = [];
  const placed: LiveJob[] = [];
  const ignore = () => {};
  const context = {
    ...{
      hot,
      book,
      instanceId: "i",
      waiting: createWaitingRoom<LiveJob>(),
      settings: { retentionMs: 60_000 },
    },
    clock: { monotonicMs: () => 0 },
    log: { error: ignore },
    meter: { retried: ignore, finished: ignore },
    tracing: { attemptEnded: ignore, jobEnded: ignore },
    deadlines: {
      clear: ignore,
      set: (key: string, inMs: number) => key.startsWith(BACK_OFF_ALARM) && pauses.push(inMs),
    },
  };
  const endings = createEndings(context as unknown as JobsContext, {
    slots: { free: async () => {} } as never,
    turns: { placedOrEnded: ignore },
    results: { deliver: async () => "out" } as never,
    retention: { bytesOf: () => 0, ended: async () => {} },
    placement: () => ({ place: (each: LiveJob) => placed.push(each) }) as never,
    isReported: () => false,
    cancelOnNode: ignore,
  });
  return { hot, job, endings, pauses, placed };
}

test("attempts that do not count are repeated at once only the first time, and later each time after that", async () => {
  const { hot, job, endings, pauses, placed } = await scene();
  let attempts = 0;
  for (; !(await readJob(hot, job.jobId))?.outcome; attempts++)
    await endings.retry(job, "inbox_full");
  expect(attempts).toBe(13);
  expect(placed).toHaveLength(1);
  expect(pauses.slice(0, 5)).toEqual([100, 200, 400, 800, 1_600]);
  // A job is never ended by them within moments.
  expect(pauses.reduce((sum, pauseMs) => sum + pauseMs, 0)).toBeGreaterThan(10_000);
  const record = await readJob(hot, job.jobId, { result: true });
  expect(record).toMatchObject({ outcome: "attempts_exhausted", countedAttempts: 0 });
  expect(record?.result).toContain("in each of its 13 attempts");
});

test("a job whose pause is over is placed; one that has ended meanwhile is not", async () => {
  const { job, endings, placed } = await scene();
  await endings.retry(job, "inbox_full");
  await endings.retry(job, "inbox_full");
  expect(placed).toHaveLength(1);
  endings.onBackOff(job.jobId);
  expect(placed).toHaveLength(2);
  await endings.cancel(job);
  endings.onBackOff(job.jobId);
  expect(placed).toHaveLength(2);
});
