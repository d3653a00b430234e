import { batchPerTick, gatherPerTick } from "../../kernel/batch.ts";
import type { PoolNode } from "../memory/node-pool.ts";
import type { JobsParts } from "../parts.ts";
import {
  countSlots,
  type FreedSlot,
  freeSlots,
  reserveSlots,
  type SlotAnswer,
  type WantedSlot,
} from "../store/slot-store.ts";
import type { Next } from "./step.ts";

/** Slots of nodes. The calls of one tick go to the store together. */
export interface Slots {
  reserve(node: PoolNode, job: WantedSlot): Promise<SlotAnswer>;
  /** Resolves when the slot is free, also if it was free before. */
  free(nodeId: string, slot: FreedSlot): Promise<void>;
}

export function createSlots(
  { hot, nodePool, settings }: Pick<JobsParts, "hot" | "nodePool" | "settings">,
  next: Next,
): Slots {
  const reserve = batchPerTick<WantedSlot, SlotAnswer>(async (nodeId, jobs) => {
    const node = nodePool.get(nodeId);
    const capacity = Math.max(0, (node?.capacity ?? 0) - (node?.stuck ?? 0));
    const ttlMs = settings.slotTtlMs;
    try {
      const reservation = { nodeId, capacity, ttlMs, wanted: jobs };
      const { answers, reserved } = await reserveSlots(hot, reservation);
      nodePool.counted(nodeId, reserved);
      return answers;
    } finally {
      nodePool.answered(nodeId, jobs.length);
    }
  });
  const free = gatherPerTick<FreedSlot>(async (nodeId, slots) => {
    const { freed, isSkipped } = await freeSlots(hot, nodeId, slots);
    if (isSkipped) return;
    // A slot that had expired was not in use any more; then only the store knows how many are.
    const isExact = freed === slots.length;
    const reserved = isExact ? nodePool.knownOf(nodeId) - freed : await countSlots(hot, nodeId);
    nodePool.counted(nodeId, Math.max(0, reserved));
    void next({ do: "serve_node", nodeId });
  });

  return {
    reserve({ nodeId }, job) {
      // Counted at once, so that the next job of this tick does not choose the same slot.
      nodePool.requesting(nodeId, 1);
      return reserve(nodeId, job);
    },
    free(nodeId, slot) {
      const before = slot.onlyIf && hot.awaitedBy(slot.onlyIf.call);
      return before ? before.then(() => free(nodeId, slot)) : free(nodeId, slot);
    },
  };
}

/** Nodes counted at once, in one round trip. */
const COUNTED_MAX = 256;

/**
 * Reads from the store how many slots of nodes are in use, a number of nodes at a time, and continues where it stopped. Other
 * instances reserve and free slots, and slots expire, without a message to this instance.
 */
export function createSlotCounts({
  hot,
  nodePool,
}: Pick<JobsParts, "hot" | "nodePool">): (fits: (node: PoolNode) => boolean) => Promise<void> {
  let last = "";
  return async (fits) => {
    const ids: string[] = [];
    for (const node of nodePool.all()) if (fits(node)) ids.push(node.nodeId);
    const at = ids.length > COUNTED_MAX ? ids.findIndex((nodeId) => nodeId > last) : 0;
    // The pool is sorted by address: after the last one come the nodes counted longest ago.
    const ordered = at > 0 ? [...ids.slice(at), ...ids.slice(0, at)] : ids;
    const some = ordered.slice(0, COUNTED_MAX);
    last = some.at(-1) ?? "";
    await Promise.all(
      some.map(async (nodeId) => nodePool.counted(nodeId, await countSlots(hot, nodeId))),
    );
  };
}
