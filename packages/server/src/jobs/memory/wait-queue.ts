import { createIndexedHeap } from "../../kernel/heap.ts";
import type { Offers } from "../policy/offers.ts";
import { createNeedCounts } from "./need-counts.ts";
import {
  createLine,
  type Group,
  grow,
  isSoonerGroup,
  joinGroup,
  type Line,
  leaveGroup,
  type Waiter,
} from "./wait-line.ts";

/** The outcome of offering the first job of a line. */
export type Offered =
  /** The job is on its way to a node. */
  | "taken"
  /** No node with the job's service has a free slot: no other job with this service is offered now. */
  | "no_room"
  /** The job waits for something else, such as another job of its turn. The next line may do better. */
  | "not_now"
  /** The job waits for a slot of this node, the one of its turn. */
  | { nodeId: string };

/** What the nodes with a free slot can take. */
export interface Openings {
  /** Services of nodes with a free slot, by tenant. Jobs without a service go to any node of their tenant. */
  readonly offers: Offers;
  /** Whether jobs that wait for this node are offered: it has a free slot, or cannot be waited for any more. */
  isOpen(nodeId: string): boolean;
}

/** The first of the jobs of a pool that wait for the same service or node. */
export interface WaitingHead {
  tenant: string;
  service?: string | undefined;
  /** Set for jobs of turns that wait for this node. */
  nodeId?: string | undefined;
  priority: number;
  /** When the oldest with this priority was submitted, and how many have it. */
  oldestMs: number;
  count: number;
}

export interface WaitQueue<W extends Waiter> {
  /** Ignored for a job that is in the queue. The limits of the queue are checked before a job is created. */
  add(waiter: W): void;
  remove(jobId: string): W | undefined;
  has(jobId: string): boolean;
  size(): number;
  sizeOf(pool: string): number;
  /** Jobs of one tenant that wait in this pool. */
  sizeOfTenant(pool: string, tenant: string): number;
  pools(): string[];
  /** Tenants whose jobs wait in this pool. */
  tenantsIn(pool: string): Iterable<string>;
  all(): Iterable<W>;
  /** Different needs of this tenant's waiting jobs, over all pools. */
  needsOf(tenant: string): number;
  hasNeed(tenant: string, need: { pool: string; need: string }): boolean;
  /** When the oldest waiting job was submitted; `undefined` if none waits. */
  oldestMs(): number | undefined;
  /**
   * Offers the jobs of a pool that fit the openings, highest priority first and then oldest first. Jobs that are taken leave
   * the queue; after a refusal no other job with the same need is offered.
   */
  serve(pool: string, openings: Openings, offer: (waiter: W) => Offered): void;
  /** The first job of each group that fits these offers or waits for one node, in order, for other instances. */
  heads(pool: string, offers: Offers): WaitingHead[];
  /** The job no longer waits for the node of its turn: it is offered with the others of its service. */
  endNodeWait(jobId: string): void;
}

/**
 * The jobs that wait for a slot on this instance: a cache of records that are CREATED, which may be lost at any time.
 *
 * Jobs with the same need are one line, by priority and age, so that a job whose service no free node has does not hold up
 * the others. Lines are in groups: by tenant and service, or by the node that a turn waits for. Tenants have lines of their
 * own, because the nodes that serve one may not serve another. Each group is a heap over the heads of its lines, so that
 * `serve` costs as much as it finds: groups that no free slot fits are not touched, whether they have one line or ten
 * thousand.
 *
 * Invariants: a job is in one line, a line in one group; no line and no group is empty; while `serve` runs, refused lines are
 * out of their group's heap, and they are back in it afterwards.
 */
export function createWaitQueue<W extends Waiter>(
  onChange: (pool: string) => void = () => {},
): WaitQueue<W> {
  const entries = new Map<string, { waiter: W; line: Line<W> }>();
  const pools = new Map<string, Pool<W>>();
  const needs = createNeedCounts();

  function poolOf(name: string): Pool<W> {
    const known = pools.get(name);
    if (known) return known;
    const pool: Pool<W> = { size: 0, tenants: new Map(), byNode: new Map() };
    pools.set(name, pool);
    return pool;
  }

  function add(waiter: W): void {
    const { jobId, tenant, need, service = "" } = waiter;
    if (entries.has(jobId)) return;
    const pool = poolOf(waiter.pool);
    const own = linesOf(pool, tenant);
    const { lines, byService } = own;
    const known = lines.get(need);
    const line = known ?? createLine<W>({ tenant, need, service });
    lines.set(need, line);
    line.add(waiter);
    if (!known) joinGroup(byService, service, line);
    else if (line.group) {
      grow(line.group.sizes, waiter.priority, 1);
      line.group.lines.moved(line);
    }
    entries.set(jobId, { waiter, line });
    needs.add(tenant, nameOf(waiter.pool, need));
    pool.size += 1;
    own.size += 1;
    onChange(waiter.pool);
  }

  function remove(jobId: string): W | undefined {
    const entry = entries.get(jobId);
    if (!entry) return undefined;
    const { waiter, line } = entry;
    const pool = poolOf(waiter.pool);
    entries.delete(jobId);
    line.remove(waiter);
    if (line.group) grow(line.group.sizes, waiter.priority, -1);
    needs.remove(waiter.tenant, nameOf(waiter.pool, line.need));
    const own = linesOf(pool, waiter.tenant);
    pool.size -= 1;
    own.size -= 1;
    if (!line.isEmpty()) line.group?.lines.moved(line);
    else {
      leaveGroup(line);
      own.lines.delete(line.need);
      if (own.size === 0) pool.tenants.delete(waiter.tenant);
    }
    if (pool.size === 0) pools.delete(waiter.pool);
    onChange(waiter.pool);
    return waiter;
  }

  function endNodeWait(jobId: string): void {
    const entry = entries.get(jobId);
    if (!entry) return;
    const { waiter, line } = entry;
    const pool = poolOf(waiter.pool);
    if (line.group?.groups !== pool.byNode) return;
    leaveGroup(line);
    joinGroup(linesOf(pool, waiter.tenant).byService, line.service, line);
  }

  return {
    add,
    remove,
    endNodeWait,
    serve(name, openings, offer) {
      const pool = pools.get(name);
      if (pool) servePool(pool, openings, offer, remove);
    },
    sizeOf: (pool) => pools.get(pool)?.size ?? 0,
    sizeOfTenant: (pool, tenant) => pools.get(pool)?.tenants.get(tenant)?.size ?? 0,
    has: (jobId) => entries.has(jobId),
    size: () => entries.size,
    pools: () => [...pools.keys()],
    tenantsIn: (pool) => pools.get(pool)?.tenants.keys() ?? [],
    *all() {
      for (const { waiter } of entries.values()) yield waiter;
    },
    needsOf: needs.of,
    hasNeed: (tenant, { pool, need }) => needs.has(tenant, nameOf(pool, need)),
    heads(name, offers) {
      const pool = pools.get(name);
      return pool ? headsOf(pool, offers) : [];
    },
    oldestMs() {
      let oldest: number | undefined;
      for (const { tenants } of pools.values())
        for (const { lines } of tenants.values())
          for (const line of lines.values())
            for (const { createdMs } of line.heads())
              if (oldest === undefined || createdMs < oldest) oldest = createdMs;
      return oldest;
    },
  };
}

interface Pool<W extends Waiter> {
  size: number;
  tenants: Map<string, TenantLines<W>>;
  byNode: Map<string, Group<W>>;
}

interface TenantLines<W extends Waiter> {
  size: number;
  /** By need. */
  lines: Map<string, Line<W>>;
  byService: Map<string, Group<W>>;
}

function linesOf<W extends Waiter>(pool: Pool<W>, tenant: string): TenantLines<W> {
  const known = pool.tenants.get(tenant);
  if (known) return known;
  const lines: TenantLines<W> = { size: 0, lines: new Map(), byService: new Map() };
  pool.tenants.set(tenant, lines);
  return lines;
}

function servePool<W extends Waiter>(
  pool: Pool<W>,
  openings: Openings,
  offer: (waiter: W) => Offered,
  remove: (jobId: string) => void,
): void {
  const open = createIndexedHeap<Group<W>>(isSoonerGroup);
  for (const group of openGroups(pool, openings)) open.push(group);
  const refused: Line<W>[] = [];
  for (let group = open.first(); group; group = open.first()) {
    const line = group.lines.first();
    const waiter = line?.first();
    if (!line || !waiter) {
      open.remove(group);
      continue;
    }
    const offered = offer(waiter);
    if (offered === "taken") remove(waiter.jobId);
    else if (offered === "no_room") open.remove(group);
    else if (offered === "not_now") {
      group.lines.remove(line);
      refused.push(line);
    } else {
      leaveGroup(line);
      // The node is full: neither this line nor the others that wait for it are offered any more.
      open.remove(joinGroup(pool.byNode, offered.nodeId, line));
    }
    open.moved(group);
  }
  for (const line of refused) line.group?.lines.push(line);
}

function headsOf<W extends Waiter>(pool: Pool<W>, offers: Offers): WaitingHead[] {
  const found: WaitingHead[] = [];
  for (const group of openGroups(pool, { offers, isOpen: () => true })) {
    const first = group.lines.first()?.first();
    if (!first) continue;
    const { tenant, priority, createdMs: oldestMs } = first;
    const count = group.sizes.get(priority) ?? 1;
    const wanted = group.groups === pool.byNode ? { nodeId: group.key } : { service: group.key };
    found.push({ tenant, ...wanted, priority, oldestMs, count });
  }
  return found.sort((a, b) => b.priority - a.priority || a.oldestMs - b.oldestMs);
}

/** The groups that a free slot may fit. Those of a tenant that none of the nodes serves are not touched. */
function* openGroups<W extends Waiter>(
  { tenants, byNode }: Pool<W>,
  { offers, isOpen }: Openings,
): Generator<Group<W>> {
  for (const [tenant, { byService }] of tenants) {
    const services = offers.to(tenant);
    if (services) yield* openServices(byService, services);
  }
  for (const group of byNode.values()) if (isOpen(group.key)) yield group;
}

/** Iterates over the waiting groups or over the offered services, whichever are fewer. */
function* openServices<W extends Waiter>(
  byService: Map<string, Group<W>>,
  services: ReadonlySet<string>,
): Generator<Group<W>> {
  const plain = byService.get("");
  if (plain) yield plain;
  if (services.size < byService.size)
    for (const service of services) {
      const group = byService.get(service);
      if (group) yield group;
    }
  else for (const group of byService.values()) if (services.has(group.key)) yield group;
}

const nameOf = (pool: string, need: string): string => `${pool} ${need}`;
