import { describe, expect, test } from "vitest";
import { jitteredMs, lookAgainMs, spreadMs, turnOf } from "./backoff.ts";

test("the delay after a wake-up grows with the fleet, up to a limit", () => {
  expect(spreadMs(2)).toBeLessThan(50);
  expect(spreadMs(50)).toBeGreaterThan(spreadMs(2));
  expect(spreadMs(100_000)).toBe(spreadMs(1_000_000));
});

test("intervals are spread around what was set", () => {
  expect([0, 0.5, 1].map((random) => Math.round(jitteredMs(5_000, random)))).toEqual([
    4_000, 5_000, 6_000,
  ]);
});

test("whoever waits for others looks again the later the larger the fleet, at most an interval apart", () => {
  const after = (members: number) =>
    lookAgainMs({ members, unmoved: 0, intervalMs: 5_000, random: 1 });
  expect([100, 2_000, 10_000].map(after)).toEqual([220, 4_020, 5_000]);
});

test("while nothing moves the next look is further and further away, at most an interval", () => {
  const after = (unmoved: number) =>
    lookAgainMs({ members: 2, unmoved, intervalMs: 5_000, random: 1 });
  expect(after(1)).toBe(2 * after(0));
  expect(after(60)).toBe(5_000);
});

describe("more nodes than rows", () => {
  const claimants = ["a", "b", "c", "d", "e"];
  const turns = (rows: number) =>
    claimants.map((me) => turnOf({ me, claimants, first: "row:1", rows, lookMs: 1 }).waitMs);

  test("as many as there are rows go at once, the others one after another", () => {
    expect(turns(2).filter((ms) => ms === 0)).toHaveLength(2);
    expect(new Set(turns(2)).size).toBe(4);
  });

  test("nobody gives way when there is enough for all, or when it claims out of impatience", () => {
    expect(turns(5)).toEqual([0, 0, 0, 0, 0]);
    expect(turnOf({ me: "x", claimants, first: "row:1", rows: 1, lookMs: 1 }).waitMs).toBe(0);
  });

  test("those whose turn it is each begin with a row of their own", () => {
    const skips = claimants.map(
      (me) => turnOf({ me, claimants, first: "r", rows: 9, lookMs: 1 }).skip,
    );
    expect(skips.sort()).toEqual([0, 1, 2, 3, 4]);
  });

  test("where calls are slow a turn is longer, or the next would come before the first has ended", () => {
    const longest = (lookMs: number) =>
      Math.max(
        ...claimants.map((me) => turnOf({ me, claimants, first: "r", rows: 4, lookMs }).waitMs),
      );
    expect(longest(1)).toBe(25);
    expect(longest(100)).toBe(400);
  });
});
