import { expect, test } from "vitest";
import { type Cost, checkCosts } from "./costs.ts";

const cost: Cost = { of: "idle", units: 5, rows: 50, transactions: 5, commands: 5, dead: 1_000 };
const LIMITS = { idle: { rows: 10 }, jobs: { commands: 3 } };

test("a window at its limit is no violation, and is counted", () => {
  expect(checkCosts([cost], LIMITS)).toMatchObject({
    violations: [],
    reached: { idle_windows: 1, job_windows: 0 },
  });
});

test("a window above its limit is one, for each second or job", () => {
  const found = checkCosts(
    [
      { ...cost, rows: 5_000 },
      { ...cost, of: "jobs", commands: 20 },
    ],
    LIMITS,
  );
  expect(found.violations).toEqual([
    "idle: 1000.0 rows each, 10 are allowed (1000 dead node-units)",
    "jobs: 4.0 commands each, 3 are allowed (1000 dead node-units)",
  ]);
});

test("one window above its limit among others within it is no violation, two of three are", () => {
  const sweep = { ...cost, rows: 5_000 };
  expect(checkCosts([cost, sweep, cost], LIMITS).violations).toEqual([]);
  expect(checkCosts([sweep, sweep, cost], LIMITS).violations).toHaveLength(1);
});
