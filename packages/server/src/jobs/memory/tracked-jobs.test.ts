import { expect, test } from "vitest";
import { newJob } from "../../../testing/jobs.ts";
import { createManualClock } from "../../../testing/manual-clock.ts";
import { newTrackedJob, type TrackedJob } from "../job.ts";
import { createTrackedJobs } from "./tracked-jobs.ts";

/** Tracked jobs under a manual clock, with the deadlines that fired. */
function scene() {
  const clock = createManualClock();
  const fired: string[] = [];
  const tracked = createTrackedJobs({
    clock,
    onDue: ({ attemptId }, kind) => fired.push(`${kind} of attempt ${attemptId}`),
    onError: (error) => fired.push(String(error)),
  });
  const { payload, ...spec } = newJob();
  const job = (words: Partial<TrackedJob> = {}): TrackedJob => ({
    ...newTrackedJob(spec, { payload, createdMs: 0, nowMs: 0 }),
    ...words,
  });
  const pass = async (ms: number) => {
    clock.advance(ms);
    await new Promise(setImmediate);
  };
  tracked.start();
  return { tracked, job, fired, pass };
}

test("a job that is released leaves the wait queue and loses its deadlines", async () => {
  const { tracked, job, fired, pass } = scene();
  const one = job();
  tracked.track(one);
  tracked.wait(one);
  tracked.setDeadline(one, "state", 100);
  tracked.setDeadline(one, "node_wait", 100);
  expect([tracked.waiting.size(), tracked.openOf(one.tenant)]).toEqual([1, 1]);
  expect(tracked.release(one)).toBe(true);
  expect([tracked.waiting.size(), tracked.openOf(one.tenant), tracked.size()]).toEqual([0, 0, 0]);
  await pass(1_000);
  expect(fired).toEqual([]);
  expect(tracked.release(one)).toBe(false);
  await tracked.stop();
});

test("a later attempt replaces the earlier one, which can change nothing any more", async () => {
  const { tracked, job, fired, pass } = scene();
  const [first, second] = [job(), job({ attemptId: 2 })];
  tracked.track(first);
  tracked.wait(first);
  tracked.setDeadline(first, "state", 100);
  tracked.track(second);
  expect(tracked.waiting.size()).toBe(0);
  tracked.setDeadline(first, "state", 100);
  tracked.wait(first);
  expect([tracked.has(first), tracked.has(second), tracked.waiting.size()]).toEqual([
    ...[false, true, 0],
  ]);
  expect(tracked.release(first)).toBe(false);
  tracked.setDeadline(second, "state", 200);
  await pass(1_000);
  expect(fired).toEqual(["state of attempt 2"]);
  await tracked.stop();
});

test("a job that is tracked again for its next attempt waits for nothing of the one before", async () => {
  const { tracked, job, fired, pass } = scene();
  const one = job();
  tracked.track(one);
  tracked.wait(one);
  tracked.setDeadline(one, "state", 100);
  tracked.track(one);
  expect([tracked.has(one), tracked.waiting.size(), tracked.openOf(one.tenant)]).toEqual([
    ...[true, 0, 1],
  ]);
  await pass(1_000);
  expect(fired).toEqual([]);
  await tracked.stop();
});
