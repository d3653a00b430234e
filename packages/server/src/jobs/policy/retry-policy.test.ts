import { expect, test } from "vitest";
import { newJob } from "../../../testing/jobs.ts";
import { newTrackedJob, type TrackedJob } from "../job.ts";
import { afterFailure, backOffMs, RETRY_REASONS } from "./retry-policy.ts";

const { payload, ...spec } = newJob({ attemptsMax: 3 });
const job = (words: Partial<TrackedJob>): TrackedJob => ({
  ...newTrackedJob(spec, { payload, createdMs: 0, nowMs: 0 }),
  ...words,
});

test("an attempt counts unless the server, the operator or a node that never accepted it ended it", () => {
  const counted = (state: TrackedJob["state"]) =>
    RETRY_REASONS.filter((reason) => {
      const step = afterFailure(job({ state }), reason, "");
      return step.event === "reassign" && step.counts;
    });
  const always = ["ack_timeout", "run_timeout", "failed", "model_not_available"];
  expect(counted("DISPATCHED").toSorted()).toEqual(always.toSorted());
  expect(counted("RUNNING").toSorted()).toEqual([...always, "node_lost"].toSorted());
});

test("the record gets another reason when the node was lost before it accepted the job", () => {
  expect(afterFailure(job({ state: "RUNNING" }), "node_lost", "")).toMatchObject({
    code: "node_lost",
    reason: "its node was lost",
  });
  expect(afterFailure(job({ state: "DISPATCHED" }), "node_lost", "gone")).toMatchObject({
    code: "node_lost_early",
    reason: "its node was lost: gone",
  });
});

test("a job ends with its last counted attempt, and with its last attempt in all", () => {
  const last = { state: "RUNNING", countedAttempts: 2 } as const;
  expect(afterFailure(job(last), "failed", "")).toMatchObject({ outcome: "attempts_exhausted" });
  expect(afterFailure(job(last), "run_timeout", "")).toMatchObject({ outcome: "timed_out" });
  expect(afterFailure(job(last), "inbox_full", "")).toMatchObject({ event: "reassign" });
  expect(afterFailure(job({ attemptId: 13 }), "inbox_full", "")).toMatchObject({
    outcome: "attempts_exhausted",
  });
});

test("uncounted attempts back off longer each time, up to two seconds", () => {
  const pauses = [1, 2, 3, 4, 5, 6, 7, 8, 9].map((attemptId) => backOffMs(job({ attemptId })));
  expect(pauses).toEqual([0, 0, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
  expect(backOffMs(job({ attemptId: 3, countedAttempts: 2 }))).toBe(0);
});
