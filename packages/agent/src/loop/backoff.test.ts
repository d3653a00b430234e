import { expect, test } from "vitest";
import { jitteredMs, retryMs, spreadMs } from "./backoff.ts";

test("the delay after a wake-up grows with the fleet, up to a limit", () => {
  expect(spreadMs(2)).toBeLessThan(50);
  expect(spreadMs(50)).toBeGreaterThan(spreadMs(2));
  expect(spreadMs(100_000)).toBe(spreadMs(1_000_000));
});

test("an interval is jittered by a fifth around its setting", () => {
  expect([0, 0.5, 1].map((random) => Math.round(jitteredMs(5_000, random)))).toEqual([
    4_000, 5_000, 6_000,
  ]);
});

test("the retry delay of a waiting node grows with the fleet, up to the interval", () => {
  const after = (members: number) =>
    retryMs({ members, unchanged: 0, intervalMs: 5_000, random: 1 });
  expect([100, 2_000, 10_000].map(after)).toEqual([220, 4_020, 5_000]);
});

test("the retry delay doubles while the list is unchanged, up to the interval", () => {
  const after = (unchanged: number) =>
    retryMs({ members: 2, unchanged, intervalMs: 5_000, random: 1 });
  expect(after(1)).toBe(2 * after(0));
  expect(after(60)).toBe(5_000);
});
