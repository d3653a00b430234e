import { expect, test } from "vitest";
import { backoffMs } from "./backoff.ts";

test("a child that keeps failing is started after 1, 2, 4 … and at most 60 seconds", () => {
  const waits = [1, 2, 3, 4, 5, 6, 7, 8, 1_000].map((failures) =>
    backoffMs({ failures, random: 0 }),
  );
  expect(waits).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60].map((seconds) => seconds * 1_000));
});

test("children that failed together are started at different times", () => {
  expect(backoffMs({ failures: 1, random: 0.999 })).toBeGreaterThan(1_050);
  expect(backoffMs({ failures: 1, random: 0.999 })).toBeLessThan(1_101);
});
