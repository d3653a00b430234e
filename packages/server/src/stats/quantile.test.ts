import { expect, test } from "vitest";
import { between, quantile } from "./quantile.ts";

const INFINITY = Number.POSITIVE_INFINITY;
const buckets = (...counts: number[]) =>
  [0.01, 0.1, 1, INFINITY].map((le, index) => ({ le, count: counts[index]! }));

test("a quantile lies within the bucket of its rank", () => {
  const all = buckets(50, 90, 100, 100);
  expect(quantile(all, 0.5)).toBeCloseTo(0.01);
  expect(quantile(all, 0.25)).toBeCloseTo(0.005);
  expect(quantile(all, 0.7)).toBeCloseTo(0.055);
  expect(quantile(all, 0.99)).toBeCloseTo(0.91);
});

test("a quantile is undefined without values, and the last bound above it", () => {
  expect(quantile([], 0.5)).toBeUndefined();
  expect(quantile(buckets(0, 0, 0, 0), 0.5)).toBeUndefined();
  expect(quantile(buckets(0, 0, 0, 3), 0.5)).toBe(1);
});

test("between two readings only the new values count", () => {
  const came = between(buckets(100, 100, 100, 100), buckets(100, 100, 104, 104));
  expect(came.map(({ count }) => count)).toEqual([0, 0, 4, 4]);
  expect(quantile(came, 0.5)).toBeGreaterThan(0.1);
  expect(between([], buckets(1, 1, 1, 1))).toEqual(buckets(1, 1, 1, 1));
});
