import type { NodeView } from "@tenure/protocol";
import { isNodeUnit, sharesTenant } from "@tenure/protocol";
import type { Scope } from "../kernel/scope.ts";
import type { Db } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { NodeConnection } from "./node-connection.ts";
import type { Nodes } from "./nodes.ts";
import { lastSeenKeys, takeUnseen, touch } from "./store/last-seen-store.ts";
import {
  findNodeUnits,
  type NodeUnitRow,
  pageOfNodeUnits,
  readNodeUnits,
} from "./store/node-unit-store.ts";
import {
  forgetNodes,
  type NodeSnapshot,
  readDraining,
  SnapshotReader,
} from "./store/snapshot-store.ts";

export interface FleetOptions {
  db: Db;
  hot: HotStore;
  nodes: Nodes;
  rows: () => readonly NodeUnitRow[];
  removeStaleAfterMs: number;
  /** The slots of a node that jobs have reserved. */
  reservedOf: (nodeId: string) => number;
  /** Whether to read the nodes of other instances. */
  readsOthers: boolean;
}

export interface Fleet {
  /** Renews the nodes of this instance, reads those of all instances, and deletes those that were away for long. */
  refresh(): Promise<void>;
  /** The nodes that are present, and node-units that just left, by address. */
  views(): NodeView[];
  /** One page of all nodes, by address; node-units that left are read from Postgres. */
  page(filter: NodeFilter): Promise<NodeView[]>;
  /** The nodes with this address or name, present or not. */
  find(scope: Scope, id: string): Promise<NodeView[]>;
}

export interface NodeFilter {
  scope: Scope;
  online?: boolean | undefined;
  nodeUnit?: boolean | undefined;
  after: string;
  limit: number;
}

/** The nodes of all instances, as this instance knows them. */
export function createFleet({
  db,
  hot,
  nodes,
  rows,
  removeStaleAfterMs,
  reservedOf,
  readsOthers,
}: FleetOptions): Fleet {
  let snapshots = new Map<string, NodeSnapshot>();
  const reader = new SnapshotReader(hot);
  const views = createViews(reservedOf);

  /** This instance's own connections are newer than the last read. */
  const known = (): Map<string, NodeSnapshot> =>
    new Map([...snapshots, ...nodes.connected().map(ownSnapshot)]);

  const withReserved = (node: NodeView): NodeView => ({
    ...node,
    reserved: reservedOf(node.node_id),
  });

  /** In the order of their addresses. */
  function present(): NodeView[] {
    const hot = known();
    const units = new Map(rows().map((row) => [row.address, row]));
    return views.of(new Set([...units.keys(), ...hot.keys()]), (address) => ({
      row: units.get(address),
      snapshot: hot.get(address),
    }));
  }

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
      if (!readsOthers) return;
      const mine = new Map(own.map(ownSnapshot));
      const others = await reader.read((nodeId) => !mine.has(nodeId));
      snapshots = new Map(mine);
      for (const snapshot of others) snapshots.set(snapshot.node_id, snapshot);
    },
    views: present,
    async page({ scope, online, nodeUnit, after, limit }) {
      const here = present().filter((node) => node.online && isSeen(scope, node));
      // Workers that are away are not stored.
      const workers = nodeUnit || online === false ? [] : here.filter((node) => !node.node_unit);
      const units = nodeUnit === false ? [] : online ? here.filter(isUnit) : await stored();
      const nodes = [...units, ...workers]
        .filter(({ node_id }) => node_id > after)
        .sort(byAddress)
        .slice(0, limit);
      if (!online) return nodes;
      const addresses = nodes.filter(isUnit).map(({ node_id }) => node_id);
      // Who is online is known without Postgres; then the times are those of the last changes.
      return withPresence(nodes, await readNodeUnits(db, addresses).catch(() => []));

      async function stored(): Promise<NodeView[]> {
        const hot = known();
        const rows = await pageOfNodeUnits(db, { scope, after, limit, present: online });
        return rows.map((row) => withReserved(viewOfUnit(row, hot.get(row.address))));
      }
    },
    async find(scope, id) {
      const here = present().filter(
        (node) => isSeen(scope, node) && (node.node_id === id || node.name === id),
      );
      const listed = new Set(here.map(({ node_id }) => node_id));
      const hot = known();
      const units = await findNodeUnits(db, [id]);
      return [
        ...withPresence(here, units),
        ...units
          .filter(({ address }) => !listed.has(address))
          .map((row) => viewOfUnit(row, hot.get(row.address)))
          .filter((node) => isSeen(scope, node))
          .map(withReserved),
      ];
    },
  };
}

/** With the ends of presence as these rows have them: renewals are not in the view of the members. */
function withPresence(nodes: readonly NodeView[], rows: readonly NodeUnitRow[]): NodeView[] {
  const ends = new Map(rows.map((row) => [row.address, row.presence_expires_at.toISOString()]));
  return nodes.map((node) => {
    const presence_expires_at = ends.get(node.node_id);
    return presence_expires_at ? { ...node, presence_expires_at } : node;
  });
}

const isSeen = (scope: Scope, { tenants }: NodeView): boolean =>
  sharesTenant(tenants, scope.tenants);

const isUnit = (node: NodeView): boolean => node.node_unit;

const byAddress = (a: NodeView, b: NodeView): number => (a.node_id < b.node_id ? -1 : 1);

const ownSnapshot = ({ nodeId, snapshot }: NodeConnection) => [nodeId, snapshot] as const;

interface Described {
  row: NodeUnitRow | undefined;
  snapshot: NodeSnapshot | undefined;
}

/**
 * The views of the nodes. A node whose row, snapshot and reserved slots have not changed keeps its view object: readers
 * find what changed by comparing objects, and thousands of idle nodes cost a look nothing but that.
 */
function createViews(reservedOf: (nodeId: string) => number) {
  let known = new Map<string, Described & { view: NodeView }>();
  let order: readonly string[] = [];

  function inOrder(addresses: ReadonlySet<string>): readonly string[] {
    const isSame = addresses.size === order.length && order.every((one) => addresses.has(one));
    if (!isSame) order = [...addresses].sort();
    return order;
  }

  return {
    of(addresses: ReadonlySet<string>, describe: (address: string) => Described): NodeView[] {
      const former = known;
      known = new Map();
      for (const address of inOrder(addresses)) {
        const { row, snapshot } = describe(address);
        const reserved = reservedOf(address);
        const last = former.get(address);
        const isSame =
          last?.row === row && last?.snapshot === snapshot && last?.view.reserved === reserved;
        const view = isSame ? last?.view : viewOf(row, snapshot);
        if (!view) continue;
        known.set(address, isSame && last ? last : { row, snapshot, view: { ...view, reserved } });
      }
      return [...known.values()].map(({ view }) => view);
    },
  };
}

/** A node-unit is described by its row, another node by its snapshot. */
function viewOf(
  row: NodeUnitRow | undefined,
  snapshot: NodeSnapshot | undefined,
): NodeView | undefined {
  return row ? viewOfUnit(row, snapshot) : snapshot && viewOfSnapshot(snapshot);
}

function viewOfUnit(row: NodeUnitRow, snapshot: NodeSnapshot | undefined): NodeView {
  const hot = snapshot?.epoch === row.epoch ? snapshot : undefined;
  const { present, instance_id, joined_at, left_at } = row;
  return {
    node_id: row.address,
    name: row.name,
    version: row.version,
    boot_id: row.boot_id,
    epoch: row.epoch,
    claim_policy: row.claim_policy,
    labels: row.labels,
    trusted_package_regexp: row.trusted_package_regexp,
    custom_command: row.custom_command,
    draining: row.draining || (hot?.draining ?? false),
    tags: row.tags,
    ...(row.tenants && { tenants: row.tenants }),
    node_unit: true,
    online: present,
    instance_id: present ? instance_id : null,
    pools: hot?.pools ?? [],
    services: hot?.services ?? [],
    capacity: hot?.capacity ?? 0,
    reserved: 0,
    ...(hot?.stuck !== undefined && { stuck: hot.stuck }),
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
