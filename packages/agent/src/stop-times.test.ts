import { expect, test } from "vitest";
import { createStopTimes } from "./stop-times.ts";

const TERM = { id: "d", generation: 1 };
const report = (lost_after_ms: number | undefined, generation = 1) => ({
  deployment_id: "d",
  generation,
  state: "running" as const,
  ...(lost_after_ms !== undefined && { lost_after_ms }),
});
const times = () => createStopTimes({ selfStopMs: 30_000, stopGraceMs: 10_000 });

test("a deployment runs until shortly before another node could own it, once that time is acknowledged", () => {
  const stop = times();
  expect(stop.of(TERM)).toBe(30_000);
  stop.sent(report(600_000));
  expect(stop.of(TERM)).toBe(30_000);
  stop.acknowledged(report(600_000), 600_000);
  expect(stop.of(TERM)).toBe(585_000);
  expect(stop.of({ ...TERM, generation: 2 })).toBe(30_000);
});

test("a deployment is never stopped before the node's own limit, and at that limit if the server does not store the value", () => {
  const stop = times();
  stop.sent(report(40_000));
  stop.acknowledged(report(40_000), 40_000);
  expect(stop.of(TERM)).toBe(30_000);
  stop.acknowledged(report(600_000), undefined);
  expect(stop.of(TERM)).toBe(30_000);
});

test("a lower value counts from its sending, because the answer may be lost", () => {
  const stop = times();
  stop.sent(report(600_000));
  stop.acknowledged(report(600_000), 600_000);
  stop.sent(report(600_000));
  expect(stop.of(TERM)).toBe(585_000);
  stop.sent(report(0));
  expect(stop.of(TERM)).toBe(30_000);
});

test("a deployment that is not retained loses its time", () => {
  const stop = times();
  stop.acknowledged(report(600_000), 600_000);
  stop.retain([]);
  expect(stop.of(TERM)).toBe(30_000);
});
