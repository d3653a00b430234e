import { CLOSE_CODES } from "@tenure/protocol";
import type { Clock } from "../kernel/clock.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { LocalNode } from "./node-connection.ts";
import { claimOwner, dropOwner, ownerKeys } from "./store/owner-store.ts";
import { dropSnapshot, writeSnapshot } from "./store/snapshot-store.ts";

export interface AnnouncerOptions {
  instanceId: string;
  hot: HotStore;
  connections: Map<string, LocalNode>;
  presenceTtlMs: number;
  ownerTtlMs: number;
  /** Whether other instances read the snapshots of the nodes connected here. */
  publishes: boolean;
  clock: Clock;
  /** A node connected, left or changed: the fleet should be refreshed. */
  onChange: () => void;
}

/** Writes owner and snapshot of the connected nodes to the hot store, where other instances read them. */
export function createNodeAnnouncer(options: AnnouncerOptions) {
  const { instanceId, hot, connections, presenceTtlMs, ownerTtlMs, clock, onChange } = options;

  /** Closes the connection when the hot store has a newer one of the same node. */
  async function announce(node: LocalNode): Promise<void> {
    node.isDirty = false;
    const sentAtMs = clock.monotonicMs();
    const owner = { instanceId, epoch: node.epoch };
    const key = ownerKeys.node(hot.prefix, node.nodeId);
    const [claim, isWritten] = await Promise.all([
      claimOwner(hot, { key, owner, ttlMs: ownerTtlMs }),
      options.publishes ? writeSnapshot(hot, node.snapshot, presenceTtlMs) : true,
    ]).catch((error) => {
      node.isDirty = true;
      throw error;
    });
    node.writtenAtMs = sentAtMs;
    if (claim.outcome === "newer" || !isWritten) closeReplaced(node);
  }

  function closeReplaced(node: LocalNode): void {
    if (connections.get(node.nodeId) === node) connections.delete(node.nodeId);
    node.link.close(CLOSE_CODES.REPLACED, "a newer connection of this node is on another instance");
  }

  return {
    announce,
    closeReplaced,
    /** Writes the snapshots before the other instances are woken, or they would read the former ones. */
    async publish(nodes: readonly LocalNode[]): Promise<void> {
      await Promise.allSettled(nodes.map(announce)); // a failed write stays dirty, and the next round repeats it
      onChange();
    },
    /** Renews the nodes that changed or were written a third of the TTL ago. */
    async renew(): Promise<void> {
      const dueBeforeMs = clock.monotonicMs() - Math.min(presenceTtlMs, ownerTtlMs) / 3;
      const due = [...connections.values()].filter(
        (node) => node.isDirty || node.writtenAtMs < dueBeforeMs,
      );
      await Promise.all(due.map(announce));
    },
    /** Resolves to whether this connection was the node's newest. */
    async withdraw({ nodeId, epoch }: LocalNode): Promise<boolean> {
      const [isNewest] = await Promise.all([
        dropOwner(hot, ownerKeys.node(hot.prefix, nodeId), { instanceId, epoch }),
        dropSnapshot(hot, { nodeId, epoch }),
      ]);
      onChange();
      return isNewest;
    },
  };
}
