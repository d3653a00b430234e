import { expect, test } from "vitest";
import { createManualClock } from "../../testing/manual-clock.ts";
import { createSessionQuota } from "./session-quota.ts";

const GONE_AFTER_MS = 600_000;

test("a session that is away counts until it is forgotten, one that ended does not", () => {
  const clock = createManualClock();
  const quota = createSessionQuota({ max: 2, goneAfterMs: GONE_AFTER_MS, clock });
  const isFull = (token: string) => {
    try {
      quota.check(token);
      return false;
    } catch {
      return true;
    }
  };
  quota.opened("a", "1");
  quota.opened("a", "2");
  expect([isFull("a"), isFull("b")]).toEqual([true, false]);
  quota.ended("a", "1");
  quota.left("a", "1");
  expect(isFull("a")).toBe(false);
  quota.opened("a", "3");
  quota.left("a", "2");
  quota.left("a", "3");
  quota.joined("a", "3");
  clock.advance(GONE_AFTER_MS - 1);
  expect(isFull("a")).toBe(true);
  clock.advance(1);
  expect(isFull("a")).toBe(false);
  quota.prune();
  quota.opened("a", "4");
  expect(isFull("a")).toBe(true); // 3 is connected again
});
