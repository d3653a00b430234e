import fc from "fast-check";
import { expect, test } from "vitest";
import { trustedUntil } from "./lease-trust.ts";

test("trust begins when the renewal was sent, whenever its answer came", () => {
  expect(trustedUntil({ sentAtMs: 1_000, ttlMs: 10_000, marginMs: 500 })).toBe(10_500);
});

test("trust ends at least a margin before the store may give the lease away", () => {
  const ms = fc.integer({ min: 0, max: 1_000_000 });
  fc.assert(
    fc.property(ms, ms, ms, ms, (sentAtMs, travelMs, ttlMs, marginMs) => {
      // The store began the term when the renewal had travelled there: never before it was sent.
      const runsOutAtMs = sentAtMs + travelMs + ttlMs;
      const trustedMs = trustedUntil({ sentAtMs, ttlMs, marginMs });
      expect(trustedMs).toBeLessThanOrEqual(runsOutAtMs - marginMs);
    }),
  );
});
