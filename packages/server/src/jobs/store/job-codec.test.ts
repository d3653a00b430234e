import { expect, test } from "vitest";
import { newJob } from "../../../testing/jobs.ts";
import { recordOf, writeSpec } from "./job-codec.ts";

/** A record at this attempt with these fields. */
function record(attemptId: number, fields: Record<string, string>) {
  const { payload, ...spec } = newJob();
  const at = `${attemptId} 0 3 1 - 1 1 -`;
  const all = { state: "CREATED", at, spec: writeSpec(spec), created_ms: "1", ...fields };
  return recordOf(spec.jobId, new Map(Object.entries(all)), { payload, result: "" });
}

test("a job is a suspect when the attempt before ended because its node was lost", () => {
  const failure = "its node was lost";
  expect(record(2, { last_failure: failure, last_reason: "1:node_lost" }).isSuspect).toBe(true);
  expect(record(2, { last_failure: failure, last_reason: "1:node_lost_early" }).isSuspect).toBe(
    false,
  );
  expect(record(2, { last_failure: "it failed", last_reason: "1:failed" }).isSuspect).toBe(false);
  expect(record(1, {}).isSuspect).toBe(false);
});

test("without a reason of the attempt before, as an instance of 0.1.0 leaves it, the text decides", () => {
  const lost = "its node was lost: its slot ran out";
  expect(record(2, { last_failure: lost }).isSuspect).toBe(true);
  expect(record(2, { last_failure: "it failed" }).isSuspect).toBe(false);
  expect(record(3, { last_failure: lost, last_reason: "1:failed" }).isSuspect).toBe(true);
  expect(record(3, { last_failure: "it failed", last_reason: "1:node_lost" }).isSuspect).toBe(
    false,
  );
  expect(record(2, { last_failure: lost, last_reason: "1:-" }).isSuspect).toBe(true);
});
