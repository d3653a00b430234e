import type { NodeView } from "@tenure/protocol";
import { isNodeUnit } from "@tenure/protocol";
import type { HotStore } from "../store/hot-store.ts";
import { lastSeenKeys, takeUnseen, touch } from "./last-seen-store.ts";
import type { NodeUnitRow } from "./node-unit-store.ts";
import type { NodeConnection, Nodes } from "./nodes.ts";
import { forgetNodes, type NodeSnapshot, readDraining, readSnapshots } from "./snapshot-store.ts";

export interface FleetOptions {
  hot: HotStore;
  nodes: Nodes;
  rows: () => readonly NodeUnitRow[];
  removeStaleAfterMs: number;
}

export interface Fleet {
  /** One round: renew our own, read everybody's, forget who is gone for long. */
  refresh(): Promise<void>;
  /** Everybody in the fleet, present or not, by name and address. */
  views(): NodeView[];
}

/** Every node of the fleet as this instance knows it, wherever the node is connected. */
export function createFleet({ hot, nodes, rows, removeStaleAfterMs }: FleetOptions): Fleet {
  let snapshots = new Map<string, NodeSnapshot>();

  return {
    async refresh() {
      const own = nodes.connected();
      const draining = await readDraining(hot);
      for (const node of own) if (!node.isNodeUnit) node.setDraining(draining.has(node.nodeId));
      await nodes.renew();
      const key = lastSeenKeys.nodes(hot.prefix);
      if (own.length > 0)
        await touch(
          hot,
          key,
          own.map(({ nodeId }) => nodeId),
        );
      await forgetNodes(hot, await takeUnseen(hot, key, removeStaleAfterMs));
      snapshots = new Map(
        (await readSnapshots(hot)).map((snapshot) => [snapshot.node_id, snapshot]),
      );
    },
    views() {
      // Our own connections first-hand: the last round may be two seconds old.
      const known = new Map([...snapshots, ...nodes.connected().map(ownSnapshot)]);
      const units = new Map(rows().map((row) => [row.address, row]));
      const addresses = new Set([...units.keys(), ...known.keys()]);
      return [...addresses]
        .flatMap((address) => viewOf(units.get(address), known.get(address)) ?? [])
        .sort((a, b) => (a.node_id < b.node_id ? -1 : 1));
    },
  };
}

const ownSnapshot = ({ nodeId, snapshot }: NodeConnection) => [nodeId, snapshot] as const;

/** A node-unit is what Postgres says; a node that is none is what the hot state says. */
function viewOf(
  row: NodeUnitRow | undefined,
  snapshot: NodeSnapshot | undefined,
): NodeView | undefined {
  if (!row) return snapshot && viewOfSnapshot(snapshot);
  const hot = snapshot?.epoch === row.epoch ? snapshot : undefined;
  const { address, present, present_for_ms: _, instance_id, joined_at, left_at, ...rest } = row;
  return {
    ...rest,
    node_id: address,
    node_unit: true,
    online: present,
    instance_id: present ? instance_id : null,
    pools: hot?.pools ?? [],
    services: hot?.services ?? [],
    capacity: hot?.capacity ?? 0,
    reserved: 0,
    resource_usage: hot?.resource_usage ?? null,
    joined_at: joined_at.toISOString(),
    left_at: left_at?.toISOString() ?? null,
    presence_expires_at: row.presence_expires_at.toISOString(),
  };
}

function viewOfSnapshot({ v: _, ...snapshot }: NodeSnapshot): NodeView {
  return {
    ...snapshot,
    node_unit: isNodeUnit(snapshot.tags),
    online: true,
    reserved: 0,
    left_at: null,
    presence_expires_at: null,
  };
}
