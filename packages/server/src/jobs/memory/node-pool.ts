import type { NodeView } from "@tenure/protocol";
import type { Clock } from "../../kernel/clock.ts";
import type { Candidate } from "../policy/node-selection.ts";
import { type Offers, offersOf } from "../policy/offers.ts";

/** A node that may take jobs, wherever it is connected. */
export interface RosterNode extends Candidate {
  readonly instanceId: string | null;
  readonly epoch: number;
  /** Slots used by attempts that are over and that the node has not stopped. */
  readonly stuck: number;
}

/** The nodes of the fleet as selection needs them: by pool, with what is reserved as far as this instance knows. */
export interface Roster {
  /** The fleet as membership sees it, once per round. */
  refresh(views: readonly NodeView[]): void;
  get(nodeId: string): RosterNode | undefined;
  /** Everybody, also those that left: their number is among the reasons. */
  all(): Iterable<RosterNode>;
  inPool(pool: string): Iterable<RosterNode>;
  poolsOf(nodeId: string): Iterable<string>;
  /** Slots were asked for and not answered yet; `undo` when the answer has come. */
  asking(nodeId: string, slots: number): () => void;
  /** The store's own count. */
  counted(nodeId: string, reserved: number): void;
  reservedOf(nodeId: string): number;
  /** The store's last count, and slots that were asked for since. */
  knownOf(nodeId: string): number;
  askingOf(nodeId: string): number;
  /** How often the store's count of this node was heard: tells whether one is newer than another. */
  countsOf(nodeId: string): number;
  /** What nodes of the pool offer to which tenants, whether or not they are free. */
  offersIn(pool: string): Offers;
  /** The node cannot serve it; the store says so too until the mark runs out. */
  mark(nodeId: string, service: string, forMs: number): void;
  /** The node says that it takes nothing new. Until it connects again, or says otherwise. */
  leaving(nodeId: string, leaving: boolean): void;
  /** Takes this connection of the node out of the selection for good. The node's next connection has another epoch. */
  left(nodeId: string, epoch: number): void;
  /** The same for every node connected to this instance, now or later: it is about to close their sockets. */
  withdraw(instanceId: string): void;
}

interface Entry {
  node: MutableNode;
  /** What the store said last, and what was asked for since. */
  known: number;
  asking: number;
  counts: number;
  /** By the operator, and by the node's own word. */
  draining: boolean;
  leaving: boolean;
  /** This connection is over or about to be closed, whatever its snapshot in the store says until that expires. */
  hasLeft: boolean;
}

type MutableNode = { -readonly [Key in keyof RosterNode]: RosterNode[Key] } & {
  unavailable: Set<string>;
};

export function createRoster({ clock }: { clock: Clock }): Roster {
  let entries = new Map<string, Entry>();
  let pools = new Map<string, RosterNode[]>();
  const marks = new Map<string, Map<string, number>>();
  let withdrawn: string | undefined;
  /** By pool, found when asked for, until the next round. */
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

  /** Numbers go on from where they were; a new connection of the node starts with a clean sheet. */
  function entryOf(view: NodeView, former: Entry | undefined): Entry {
    const same = former?.node.epoch === view.epoch ? former : undefined;
    const entry: Entry = {
      node: nodeOf(view, unmarked(view.node_id)),
      known: former?.known ?? 0,
      asking: former?.asking ?? 0,
      counts: former?.counts ?? 0,
      draining: view.draining,
      leaving: same?.leaving ?? false,
      hasLeft: same?.hasLeft || (view.instance_id !== null && view.instance_id === withdrawn),
    };
    settle(entry);
    return entry;
  }

  function settle(entry: Entry): void {
    entry.node.reserved = entry.known + entry.asking + entry.node.stuck;
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
    settle(entry);
  }

  return {
    refresh,
    get: (nodeId) => entries.get(nodeId)?.node,
    *all() {
      for (const { node } of entries.values()) yield node;
    },
    inPool: (pool) => pools.get(pool) ?? [],
    poolsOf: (nodeId) => entries.get(nodeId)?.node.pools ?? [],
    asking(nodeId, slots) {
      change(nodeId, (entry) => {
        entry.asking += slots;
      });
      return () =>
        change(nodeId, (entry) => {
          entry.asking = Math.max(0, entry.asking - slots);
        });
    },
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
    askingOf: (nodeId) => entries.get(nodeId)?.asking ?? 0,
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
        settle(entry);
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

function byPool(entries: Iterable<Entry>): Map<string, RosterNode[]> {
  const pools = new Map<string, RosterNode[]>();
  for (const { node } of entries) {
    for (const pool of node.pools) {
      const nodes = pools.get(pool);
      if (nodes) nodes.push(node);
      else pools.set(pool, [node]);
    }
  }
  return pools;
}
