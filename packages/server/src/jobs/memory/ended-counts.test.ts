import { expect, test } from "vitest";
import { createEndedCounts } from "./ended-counts.ts";

test("a job counts until the figures contain it, also after rounds that failed", () => {
  const counts = createEndedCounts({ lateRounds: 2 });
  counts.add("blue");
  counts.begin();
  counts.add("red");
  counts.begin(); // the former round failed
  counts.add("blue");
  expect([counts.all(), counts.of("blue"), counts.of("red")]).toEqual([3, 2, 1]);
  counts.end(true);
  // What ended after the round had begun is not in its figures.
  expect([counts.all(), counts.of("blue"), counts.of("red")]).toEqual([1, 1, 0]);
});

test("a job counts for some rounds more when another instance counts", () => {
  const counts = createEndedCounts({ lateRounds: 2 });
  counts.add("blue");
  for (const left of [1, 1, 0]) {
    counts.begin();
    counts.end(false);
    expect(counts.all()).toBe(left);
  }
});
