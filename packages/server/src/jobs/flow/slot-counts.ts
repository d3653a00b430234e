import type { HotStore } from "../../store/hot-store.ts";
import type { Roster, RosterNode } from "../memory/node-pool.ts";
import { countSlots } from "../store/slot-store.ts";

/** Nodes that are counted at once: one round trip. */
const COUNTED_MAX = 256;

/**
 * Asks the store how many slots of nodes are in use, so many nodes at a time, and goes on where it stopped the time before.
 * Slots are also reserved and freed by other instances, and run out, without a message to this one.
 */
export function createSlotCounts({
  hot,
  roster,
}: {
  hot: HotStore;
  roster: Roster;
}): (fits: (node: RosterNode) => boolean) => Promise<void> {
  let last = "";
  return async (fits) => {
    const ids: string[] = [];
    for (const node of roster.all()) if (fits(node)) ids.push(node.nodeId);
    const at = ids.length > COUNTED_MAX ? ids.findIndex((nodeId) => nodeId > last) : 0;
    // The roster is sorted by address: behind the last one come those that were not counted for the longest time.
    const next = at > 0 ? [...ids.slice(at), ...ids.slice(0, at)] : ids;
    const some = next.slice(0, COUNTED_MAX);
    last = some.at(-1) ?? "";
    await Promise.all(
      some.map(async (nodeId) => roster.counted(nodeId, await countSlots(hot, nodeId))),
    );
  };
}
