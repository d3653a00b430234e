import { expect, test } from "vitest";
import { createBoundedMatch } from "./bounded-match.ts";

test("a pattern matches the whole text, as everywhere else", () => {
  const matches = createBoundedMatch();
  expect(matches("a|b", "b")).toBe(true);
  expect(matches("a|b", "ab")).toBe(false);
  expect(matches("(", "(")).toBe(false);
});

test("a pattern that would take for ever is no match, and costs a moment once", () => {
  const matches = createBoundedMatch(20);
  const began = performance.now();
  for (let n = 0; n < 100; n++) expect(matches("(a+)+b", "a".repeat(60))).toBe(false);
  expect(performance.now() - began).toBeLessThan(2_000);
});
