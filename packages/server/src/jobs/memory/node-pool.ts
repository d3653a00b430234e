import type { NodeView } from "@tenure/protocol";
import type { Clock } from "../../kernel/clock.ts";
import type { Candidate } from "../policy/node-selection.ts";
import { type Offers, offersOf } from "../policy/offers.ts";

/** A node that may take jobs, connected to any instance. */
export interface PoolNode extends Candidate {
  readonly instanceId: string | null;
  readonly epoch: number;
  /** Slots used by attempts that are over and still run on the node. */
  readonly stuck: number;
}

/** The nodes of the fleet by pool, with the slots in use as far as this instance knows. */
export interface NodePool {
  /** Replaces the nodes by those that membership sees, once per round. */
  refresh(views: readonly NodeView[]): void;
  get(nodeId: string): PoolNode | undefined;
  /** All nodes, also offline ones: `NO_AVAILABLE_NODE` counts them. */
  all(): Iterable<PoolNode>;
  inPool(pool: string): Iterable<PoolNode>;
  poolsOf(nodeId: string): Iterable<string>;
  /** Counts slots that are being requested, until `answered` is called for them. */
  requesting(nodeId: string, slots: number): void;
  answered(nodeId: string, slots: number): void;
  /** Sets the store's count of slots in use. */
  counted(nodeId: string, reserved: number): void;
  reservedOf(nodeId: string): number;
  /** The store's last count. */
  knownOf(nodeId: string): number;
  /** Slots being requested. */
  requestedOf(nodeId: string): number;
  /** How often the store's count of this node was set, to compare the age of two counts. */
  countsOf(nodeId: string): number;
  /** The services that nodes of the pool offer to tenants, with or without a free slot. */
  offersIn(pool: string): Offers;
  /** Leaves the node out for this service; the store has the same mark until it expires. */
  mark(nodeId: string, service: string, forMs: number): void;
  /** The node reported that it takes no new jobs, until it reconnects or reports otherwise. */
  leaving(nodeId: string, leaving: boolean): void;
  /** Takes this connection of the node out of the selection. The next connection has another epoch. */
  left(nodeId: string, epoch: number): void;
  /** The same for every node connected to this instance, now or later: the instance is about to close their sockets. */
  withdraw(instanceId: string): void;
}

interface Entry {
  node: MutableNode;
  /** The store's last count, and slots being requested. */
  known: number;
  requested: number;
  counts: number;
  /** By the operator, and by the node's own report. */
  draining: boolean;
  leaving: boolean;
  /** This connection is over or about to be closed. Its snapshot stays in the store until it expires. */
  hasLeft: boolean;
}

type MutableNode = { -readonly [Key in keyof PoolNode]: PoolNode[Key] } & {
  unavailable: Set<string>;
};

export function createNodePool({ clock }: { clock: Clock }): NodePool {
  let entries = new Map<string, Entry>();
  let pools = new Map<string, PoolNode[]>();
  const marks = new Map<string, Map<string, number>>();
  let withdrawn: string | undefined;
  /** By pool, computed on demand, until the next round. */
  const offered = new Map<string, Offers>();

  function refresh(views: readonly NodeView[]): void {
    const next = new Map<string, Entry>();
    for (const view of views) {
      if (view.pools.length === 0) continue;
      next.set(view.node_id, entryOf(view, entries.get(view.node_id)));
    }
    entries = next;
    pools = byPool(next.values());
    offered.clear();
    for (const nodeId of marks.keys()) if (!next.has(nodeId)) marks.delete(nodeId);
  }

  /** Counts are kept; `leaving` and `hasLeft` belong to one connection of the node. */
  function entryOf(view: NodeView, former: Entry | undefined): Entry {
    const same = former?.node.epoch === view.epoch ? former : undefined;
    const entry: Entry = {
      node: nodeOf(view, unmarked(view.node_id)),
      known: former?.known ?? 0,
      requested: former?.requested ?? 0,
      counts: former?.counts ?? 0,
      draining: view.draining,
      leaving: same?.leaving ?? false,
      hasLeft: same?.hasLeft || (view.instance_id !== null && view.instance_id === withdrawn),
    };
    recompute(entry);
    return entry;
  }

  function recompute(entry: Entry): void {
    entry.node.reserved = entry.known + entry.requested + entry.node.stuck;
    entry.node.draining = entry.draining || entry.leaving;
    if (!entry.hasLeft) return;
    entry.node.online = false;
    entry.node.instanceId = null;
  }

  function unmarked(nodeId: string): Set<string> {
    const services = marks.get(nodeId);
    const nowMs = clock.monotonicMs();
    for (const [service, untilMs] of services ?? [])
      if (untilMs <= nowMs) services?.delete(service);
    return new Set(services?.keys());
  }

  function change(nodeId: string, by: (entry: Entry) => void): void {
    const entry = entries.get(nodeId);
    if (!entry) return;
    by(entry);
    recompute(entry);
  }

  return {
    refresh,
    get: (nodeId) => entries.get(nodeId)?.node,
    *all() {
      for (const { node } of entries.values()) yield node;
    },
    inPool: (pool) => pools.get(pool) ?? [],
    poolsOf: (nodeId) => entries.get(nodeId)?.node.pools ?? [],
    requesting: (nodeId, slots) =>
      change(nodeId, (entry) => {
        entry.requested += slots;
      }),
    answered: (nodeId, slots) =>
      change(nodeId, (entry) => {
        entry.requested = Math.max(0, entry.requested - slots);
      }),
    counted: (nodeId, reserved) =>
      change(nodeId, (entry) => {
        entry.known = reserved;
        entry.counts += 1;
      }),
    reservedOf(nodeId) {
      const entry = entries.get(nodeId);
      return entry ? Math.min(entry.known + entry.node.stuck, entry.node.capacity) : 0;
    },
    knownOf: (nodeId) => entries.get(nodeId)?.known ?? 0,
    requestedOf: (nodeId) => entries.get(nodeId)?.requested ?? 0,
    countsOf: (nodeId) => entries.get(nodeId)?.counts ?? 0,
    offersIn(pool) {
      const offers = offered.get(pool) ?? offersOf(pools.get(pool) ?? []);
      offered.set(pool, offers);
      return offers;
    },
    mark(nodeId, service, forMs) {
      const services = marks.get(nodeId) ?? new Map<string, number>();
      marks.set(nodeId, services.set(service, clock.monotonicMs() + forMs));
      entries.get(nodeId)?.node.unavailable.add(service);
    },
    leaving: (nodeId, leaving) =>
      change(nodeId, (entry) => {
        entry.leaving = leaving;
      }),
    left: (nodeId, epoch) =>
      change(nodeId, (entry) => {
        if (entry.node.epoch === epoch) entry.hasLeft = true;
      }),
    withdraw(instanceId) {
      withdrawn = instanceId;
      for (const entry of entries.values()) {
        if (entry.node.instanceId !== instanceId) continue;
        entry.hasLeft = true;
        recompute(entry);
      }
    },
  };
}

const nodeOf = (view: NodeView, unavailable: Set<string>): MutableNode => ({
  nodeId: view.node_id,
  instanceId: view.instance_id,
  epoch: view.epoch,
  online: view.online,
  draining: view.draining,
  tenants: view.tenants,
  pools: new Set(view.pools),
  services: new Set(view.services),
  capacity: view.capacity,
  stuck: view.stuck ?? 0,
  reserved: 0,
  unavailable,
});

function byPool(entries: Iterable<Entry>): Map<string, PoolNode[]> {
  const pools = new Map<string, PoolNode[]>();
  for (const { node } of entries) {
    for (const pool of node.pools) {
      const nodes = pools.get(pool);
      if (nodes) nodes.push(node);
      else pools.set(pool, [node]);
    }
  }
  return pools;
}
