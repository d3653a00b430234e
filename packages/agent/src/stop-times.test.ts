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

test("a deployment goes on until shortly before another node could own it, once that is acknowledged", () => {
  const stop = times();
  expect(stop.of(TERM)).toBe(30_000);
  stop.sent(report(600_000));
  expect(stop.of(TERM)).toBe(30_000);
  stop.heard(report(600_000), 600_000);
  expect(stop.of(TERM)).toBe(585_000);
  expect(stop.of({ ...TERM, generation: 2 })).toBe(30_000);
});

test("never earlier than the node's own limit, and only that at a server that does not keep the value", () => {
  const stop = times();
  stop.sent(report(40_000));
  stop.heard(report(40_000), 40_000);
  expect(stop.of(TERM)).toBe(30_000);
  stop.heard(report(600_000), undefined);
  expect(stop.of(TERM)).toBe(30_000);
});

test("a lower value counts from when it is sent: the answer may be lost", () => {
  const stop = times();
  stop.sent(report(600_000));
  stop.heard(report(600_000), 600_000);
  stop.sent(report(600_000));
  expect(stop.of(TERM)).toBe(585_000);
  stop.sent(report(0));
  expect(stop.of(TERM)).toBe(30_000);
});

test("what the node has nothing to do with any more is forgotten", () => {
  const stop = times();
  stop.heard(report(600_000), 600_000);
  stop.keep([]);
  expect(stop.of(TERM)).toBe(30_000);
});
