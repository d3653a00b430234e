import { describe, expect, test } from "vitest";
import { claimDelay } from "./claim-order.ts";

describe("more nodes than rows", () => {
  const claimants = ["a", "b", "c", "d", "e"];
  const delays = (rows: number) =>
    claimants.map((me) => claimDelay({ me, claimants, first: "row:1", rows, listMs: 1 }).waitMs);

  test("one node per row claims at once, the others one after another", () => {
    expect(delays(2).filter((ms) => ms === 0)).toHaveLength(2);
    expect(new Set(delays(2)).size).toBe(4);
  });

  test("no node waits when there are enough rows, or when it is not among the claimants", () => {
    expect(delays(5)).toEqual([0, 0, 0, 0, 0]);
    expect(claimDelay({ me: "x", claimants, first: "row:1", rows: 1, listMs: 1 }).waitMs).toBe(0);
  });

  test("nodes that claim at once each begin with a different row", () => {
    const skips = claimants.map(
      (me) => claimDelay({ me, claimants, first: "r", rows: 9, listMs: 1 }).skip,
    );
    expect(skips.sort()).toEqual([0, 1, 2, 3, 4]);
  });

  test("a slow list makes the steps longer, so that a claim ends before the next node claims", () => {
    const longest = (listMs: number) =>
      Math.max(
        ...claimants.map((me) => claimDelay({ me, claimants, first: "r", rows: 4, listMs }).waitMs),
      );
    expect(longest(1)).toBe(25);
    expect(longest(100)).toBe(400);
  });
});
