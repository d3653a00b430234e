import type { NodeView } from "@tenure/protocol";
import { expect, test } from "vitest";
import { openTestHot } from "../../../testing/hot-stores.ts";
import { newJobId } from "../../../testing/jobs.ts";
import { createManualClock } from "../../../testing/manual-clock.ts";
import { createNodePool } from "../memory/node-pool.ts";
import { freeSlots, reserveSlots } from "../store/slot-store.ts";
import { createSlotCounts } from "./slots.ts";

test("every full node is counted again within four rounds, however many there are", async () => {
  const { hot } = await openTestHot("memory");
  const nodePool = createNodePool({ clock: createManualClock() });
  const ids = Array.from({ length: 1_000 }, (_, at) => `node-${String(at).padStart(4, "0")}`);
  const view = (node_id: string) => ({ node_id, pools: ["gpu"], services: [], capacity: 1 });
  nodePool.refresh(ids.map((nodeId) => ({ ...view(nodeId), online: true }) as unknown as NodeView));
  const held = { jobId: newJobId(), attemptId: 1 };
  for (const nodeId of ids) {
    await reserveSlots(hot, { nodeId, capacity: 1, ttlMs: 60_000, wanted: [held] });
    nodePool.counted(nodeId, 1);
  }
  // Freed by another instance, without a message.
  const idle = ids.slice(-20);
  for (const nodeId of idle) await freeSlots(hot, nodeId, [held]);
  const count = createSlotCounts({ hot, nodePool });
  const free = () => ids.filter((nodeId) => nodePool.reservedOf(nodeId) === 0);
  let looks = 0;
  for (; looks < 10 && free().length < idle.length; looks++)
    await count(({ reserved, capacity }) => reserved >= capacity);
  expect(free()).toEqual(idle);
  expect(looks).toBeLessThanOrEqual(4);
});
