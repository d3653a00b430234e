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

test("a pattern that took too long is tried again after a minute, not never", () => {
  let nowMs = 0;
  const matches = createBoundedMatch(20, () => nowMs);
  const endless = "(a+)+";
  expect(matches(endless, `${"a".repeat(40)}!`)).toBe(false);
  const startedMs = performance.now();
  expect(matches(endless, `${"a".repeat(40)}!`)).toBe(false);
  expect(performance.now() - startedMs).toBeLessThan(20);
  nowMs = 60_000;
  const againMs = performance.now();
  expect(matches(endless, `${"a".repeat(40)}!`)).toBe(false);
  expect(performance.now() - againMs).toBeGreaterThanOrEqual(20);
});
