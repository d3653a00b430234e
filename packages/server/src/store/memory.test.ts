import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { createManualClock } from "../../testing/manual-clock.ts";
import { claimOwner, ownerKeys } from "../membership/store/owner-store.ts";
import { openMemory } from "./memory.ts";

test("while a store with many keys is swept, others get their turns", async () => {
  const clock = createManualClock();
  const hot = openMemory({ prefix: "t", clock });
  const owner = { instanceId: "a", epoch: 1 };
  for (let n = 0; n < 20_000; n++)
    await claimOwner(hot, { key: ownerKeys.node("t", `n${n}`), owner, ttlMs: 1_000 });

  clock.advance(10_000);
  await turn(); // it has begun
  let isSwept = false;
  const swept = hot.close().then(() => {
    isSwept = true;
  });
  let turns = 0;
  for (; !isSwept; turns++) await turn();
  await swept;
  expect(turns).toBeGreaterThanOrEqual(5);
});
