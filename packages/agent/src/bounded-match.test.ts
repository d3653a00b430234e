import { expect, test } from "vitest";
import { createManualClock } from "../../sdk/testing/manual-clock.ts";
import { createBoundedMatch } from "./bounded-match.ts";

test("matches the whole text, and nothing with a pattern that is none", () => {
  const matches = createBoundedMatch({ limitMs: 1_000 });
  expect(matches("@acme/.+@1\\..*", "@acme/web@1.2.3")).toBe(true);
  expect(matches("acme", "@acme/web@1.2.3")).toBe(false);
  expect(matches("(", "(")).toBe(false);
});

test("a pattern without an end costs a moment, and after a few of them nothing", () => {
  const clock = createManualClock();
  const limitMs = 50;
  const matches = createBoundedMatch({ limitMs, clock });
  const startedMs = performance.now();
  const answers = Array.from({ length: 1_000 }, (_, n) =>
    matches("(a+)+b", `${"a".repeat(40)}${n}`),
  );
  expect(new Set(answers)).toEqual(new Set([false]));
  // A thousand limits would be 50 s.
  expect(performance.now() - startedMs).toBeLessThan(20 * limitMs * 10);
});

test("a pattern that had its rest is tried again", () => {
  const clock = createManualClock();
  const matches = createBoundedMatch({ limitMs: 300, clock });
  for (let n = 0; n < 4; n++) matches("(a+)+b", `${"a".repeat(40)}${n}`);
  expect(matches("(a+)+b", "aab")).toBe(false);
  clock.advance(60_001);
  expect(matches("(a+)+b", "aab")).toBe(true);
});
