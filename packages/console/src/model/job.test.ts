import type { JobTimelineEntry } from "@tenure/protocol";
import { expect, test } from "vitest";
import { attemptsOf, jobCondition, jobDurationMs } from "./job.ts";

const at = (second: number): string => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
const step = (
  second: number,
  state: JobTimelineEntry["state"],
  attempt_id = 1,
  node_id?: string,
) => ({
  at: at(second),
  state,
  attempt_id,
  ...(node_id && { node_id }),
});

test("a timeline is one lane per attempt, on one scale, whatever order it comes in", () => {
  const timeline = [
    step(0, "CREATED"),
    step(1, "DISPATCHED", 1, "a"),
    step(6, "CREATED", 2),
    step(7, "DISPATCHED", 2, "b"),
    step(8, "RUNNING", 2, "b"),
    step(12, "FINISHED", 2, "b"),
    step(12, "RELEASED", 2, "b"),
  ];
  const [first, second] = attemptsOf({ timeline: timeline.toReversed() }, Date.parse(at(99)));
  const lanes = [first, second].map((attempt) =>
    attempt!.spans.map(({ state, fromMs, toMs }) => [state, (toMs - fromMs) / 1_000]),
  );
  expect(lanes).toEqual([
    [
      ["CREATED", 1],
      ["DISPATCHED", 5],
    ],
    [
      ["CREATED", 1],
      ["DISPATCHED", 1],
      ["RUNNING", 4],
    ],
  ]);
  expect([first!.nodeId, second!.nodeId]).toEqual(["a", "b"]);
});

test("the last step of a job that has not ended lasts until now", () => {
  const [attempt] = attemptsOf({ timeline: [step(0, "CREATED")] }, Date.parse(at(30)));
  expect(attempt!.spans[0]!.toMs - attempt!.spans[0]!.fromMs).toBe(30_000);
  expect(attemptsOf({ timeline: [] }, 0)).toEqual([]);
});

test("a run has the tone of how it ended", () => {
  const timeline = [
    step(0, "RUNNING", 1, "a"),
    step(1, "CREATED", 2),
    step(2, "RUNNING", 2, "b"),
    step(3, "FINISHED", 2, "b"),
  ];
  const tones = (outcome?: "succeeded" | "failed") =>
    attemptsOf({ timeline, ...(outcome && { outcome }) }, Date.parse(at(9))).map(
      ({ spans }) => spans.find(({ state }) => state === "RUNNING")!.tone,
    );
  expect(tones("succeeded")).toEqual(["bad", "good"]);
  expect(tones("failed")).toEqual(["bad", "bad"]);
  const running = attemptsOf({ timeline: [step(0, "RUNNING")] }, Date.parse(at(9)));
  expect(running[0]!.spans[0]!.tone).toBe("good");
});

test("how long it took, or takes", () => {
  const job = { created_at: at(0), timeline: [step(0, "CREATED"), step(3, "FINISHED")] };
  expect(jobDurationMs({ ...job, state: "RELEASED" }, Date.parse(at(50)))).toBe(3_000);
  expect(jobDurationMs({ ...job, timeline: [], state: "RUNNING" }, Date.parse(at(5)))).toBe(5_000);
  expect(
    jobDurationMs({ ...job, timeline: [], state: "FINISHED" }, Date.parse(at(5))),
  ).toBeUndefined();
});

test("a job with an outcome shows the outcome, not the state", () => {
  expect(jobCondition({ state: "RELEASED", outcome: "timed_out" })).toEqual({
    tone: "warn",
    word: "timed out",
  });
  expect(jobCondition({ state: "CREATED" }).word).toBe("waiting");
});
