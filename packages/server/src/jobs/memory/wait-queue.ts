import TinyQueue from "tinyqueue";
import { createIndexedHeap, type IndexedHeap } from "../../kernel/heap.ts";
import type { Offers } from "../policy/offers.ts";

/** A job that waits for a slot. */
export interface Waiter {
  readonly jobId: string;
  readonly tenant: string;
  readonly pool: string;
  readonly service: string | undefined;
  readonly priority: number;
  /** When it was submitted. A job that comes back from a lost node keeps its age. */
  readonly createdAtMs: number;
  /** What it needs besides the pool. Of those with the same need, either all can be placed now or none. */
  readonly need: string;
}

/** What came of offering the first job of a line. */
export type Offered =
  /** It is on its way to a node. */
  | "taken"
  /** No node that offers its service has a free slot: no other job with this service is offered now. */
  | "no_room"
  /** It waits for something else, such as another job of its turn. The next line may do better. */
  | "not_now"
  /** It waits for a slot of this node, the one of its turn. */
  | { nodeId: string };

/** What the nodes with a free slot can take. */
export interface Openings {
  /** Services of nodes with a free slot, by the tenants they serve. Jobs without a service go to any node of their tenant. */
  readonly offers: Offers;
  /** Whether jobs that wait for this node are to be offered: it has a free slot, or cannot be waited for any more. */
  isOpen(nodeId: string): boolean;
}

/** The first of the jobs of a pool that want the same of a node. */
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

export interface WaitingRoom<W extends Waiter> {
  /** One that is in it already stays where it is. How many may come in is judged at the door, before a job exists. */
  add(waiter: W): void;
  remove(jobId: string): W | undefined;
  has(jobId: string): boolean;
  size(): number;
  sizeOf(pool: string): number;
  pools(): string[];
  /** The tenants whose jobs wait in this pool. */
  tenantsIn(pool: string): Iterable<string>;
  all(): Iterable<W>;
  /** Different needs that jobs of this tenant wait with, over all pools. */
  needsOf(tenant: string): number;
  hasNeed(tenant: string, need: { pool: string; need: string }): boolean;
  /** When the one was submitted that waits for the longest time; `undefined` when nobody waits. */
  oldestMs(): number | undefined;
  /**
   * Offers those of a pool that fit the openings, highest priority first and then oldest first. Jobs that are taken
   * leave the room; after a refusal no other job with the same need is offered.
   */
  serve(pool: string, openings: Openings, offer: (waiter: W) => Offered): void;
  /**
   * The first job of each group that fits these offers, or that waits for one node: the first first. A post for
   * other instances, which need to know no more than what comes next.
   */
  heads(pool: string, offers: Offers): WaitingHead[];
  /** The job waits for the node of its turn no longer: it is offered with the others of its service. */
  release(jobId: string): void;
}

/**
 * The jobs that wait for a slot, on this instance. It is a cache of records that are CREATED: losing it loses nothing.
 *
 * Jobs with the same need stand in one line, by priority and age, because a job that wants a service no free node has must
 * not hold up the others behind it. Lines stand in groups: by tenant and service, or by the node that a turn waits for.
 * Tenants have lines of their own, because the nodes that serve one may not serve another. Each group is a heap over the
 * heads of its lines, so a look costs as much as it finds: groups that no free slot fits are not touched, whether they
 * hold one line or ten thousand.
 *
 * Invariants: a job is in one line, a line in one group; no line and no group is empty; while `serve` runs, lines that
 * were refused are out of their group's heap, and they are back in it afterwards.
 */
export function createWaitingRoom<W extends Waiter>(
  onChange: (pool: string) => void = () => {},
): WaitingRoom<W> {
  const places = new Map<string, { waiter: W; line: Line<W> }>();
  const pools = new Map<string, Pool<W>>();
  const needs = createNeedCounts();

  function poolOf(name: string): Pool<W> {
    const known = pools.get(name);
    if (known) return known;
    const pool: Pool<W> = { size: 0, tenants: new Map(), byNode: new Map() };
    pools.set(name, pool);
    return pool;
  }

  function linesOf(pool: Pool<W>, tenant: string): TenantLines<W> {
    const known = pool.tenants.get(tenant);
    if (known) return known;
    const lines: TenantLines<W> = { lines: new Map(), byService: new Map() };
    pool.tenants.set(tenant, lines);
    return lines;
  }

  function enter(groups: Map<string, Group<W>>, key: string, line: Line<W>): Group<W> {
    const group = groups.get(key) ?? createGroup(key, groups);
    groups.set(key, group);
    group.lines.push(line);
    if (line.group !== group)
      for (const [priority, count] of line.sizes) grow(group.sizes, priority, count);
    line.group = group;
    return group;
  }

  function leave(line: Line<W>): void {
    const { group } = line;
    if (!group) return;
    group.lines.remove(line);
    for (const [priority, count] of line.sizes) grow(group.sizes, priority, -count);
    if (group.sizes.size === 0) group.groups.delete(group.key);
    line.group = undefined;
  }

  function remove(jobId: string): W | undefined {
    const place = places.get(jobId);
    if (!place) return undefined;
    const { waiter, line } = place;
    const pool = poolOf(waiter.pool);
    places.delete(jobId);
    line.remove(waiter);
    if (line.group) grow(line.group.sizes, waiter.priority, -1);
    needs.remove(waiter.tenant, nameOf(waiter.pool, line.need));
    pool.size -= 1;
    if (!line.isEmpty()) line.group?.lines.moved(line);
    else {
      leave(line);
      const { lines } = linesOf(pool, waiter.tenant);
      lines.delete(line.need);
      if (lines.size === 0) pool.tenants.delete(waiter.tenant);
    }
    if (pool.size === 0) pools.delete(waiter.pool);
    onChange(waiter.pool);
    return waiter;
  }

  function serve(name: string, openings: Openings, offer: (waiter: W) => Offered): void {
    const pool = pools.get(name);
    if (!pool) return;
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
        leave(line);
        // That node is full: neither this line nor the others that wait for it are offered any more.
        open.remove(enter(pool.byNode, offered.nodeId, line));
      }
      open.moved(group);
    }
    for (const line of refused) line.group?.lines.push(line);
  }

  return {
    remove,
    serve,
    sizeOf: (pool) => pools.get(pool)?.size ?? 0,
    has: (jobId) => places.has(jobId),
    size: () => places.size,
    pools: () => [...pools.keys()],
    tenantsIn: (pool) => pools.get(pool)?.tenants.keys() ?? [],
    *all() {
      for (const { waiter } of places.values()) yield waiter;
    },
    needsOf: needs.of,
    hasNeed: (tenant, { pool, need }) => needs.has(tenant, nameOf(pool, need)),
    add(waiter) {
      const { jobId, tenant, need, service = "" } = waiter;
      if (places.has(jobId)) return;
      const pool = poolOf(waiter.pool);
      const { lines, byService } = linesOf(pool, tenant);
      const known = lines.get(need);
      const line = known ?? createLine<W>({ tenant, need, service });
      lines.set(need, line);
      line.add(waiter);
      if (!known) enter(byService, service, line);
      else if (line.group) {
        grow(line.group.sizes, waiter.priority, 1);
        line.group.lines.moved(line);
      }
      places.set(jobId, { waiter, line });
      needs.add(tenant, nameOf(waiter.pool, need));
      pool.size += 1;
      onChange(waiter.pool);
    },
    release(jobId) {
      const place = places.get(jobId);
      if (!place) return;
      const { waiter, line } = place;
      const pool = poolOf(waiter.pool);
      if (line.group?.groups !== pool.byNode) return;
      leave(line);
      enter(linesOf(pool, waiter.tenant).byService, line.service, line);
    },
    heads(name, offers) {
      const pool = pools.get(name);
      if (!pool) return [];
      const found: WaitingHead[] = [];
      for (const group of openGroups(pool, { offers, isOpen: () => true })) {
        const first = group.lines.first()?.first();
        if (!first) continue;
        const { tenant, priority, createdAtMs: oldestMs } = first;
        const count = group.sizes.get(priority) ?? 1;
        const what = group.groups === pool.byNode ? { nodeId: group.key } : { service: group.key };
        found.push({ tenant, ...what, priority, oldestMs, count });
      }
      return found.sort((a, b) => b.priority - a.priority || a.oldestMs - b.oldestMs);
    },
    oldestMs() {
      let oldest: number | undefined;
      for (const { tenants } of pools.values())
        for (const { lines } of tenants.values())
          for (const line of lines.values())
            for (const { createdAtMs } of line.heads())
              if (oldest === undefined || createdAtMs < oldest) oldest = createdAtMs;
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
  /** By need. */
  lines: Map<string, Line<W>>;
  byService: Map<string, Group<W>>;
}

interface Group<W extends Waiter> {
  readonly key: string;
  /** The map it is in. */
  readonly groups: Map<string, Group<W>>;
  readonly lines: IndexedHeap<Line<W>>;
  /** How many jobs of each priority are in its lines, also in those that are out of the heap for now. */
  readonly sizes: Map<number, number>;
}

const createGroup = <W extends Waiter>(key: string, groups: Map<string, Group<W>>): Group<W> => ({
  key,
  groups,
  lines: createIndexedHeap<Line<W>>(isSooner),
  sizes: new Map(),
});

function grow(sizes: Map<number, number>, priority: number, by: number): void {
  const size = (sizes.get(priority) ?? 0) + by;
  if (size > 0) sizes.set(priority, size);
  else sizes.delete(priority);
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

/** Goes through the waiting groups or through what is offered, whichever are fewer. */
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

/** How many different things each tenant wants at the moment. */
export interface NeedCounts {
  add(tenant: string, need: string): void;
  remove(tenant: string, need: string): void;
  has(tenant: string, need: string): boolean;
  of(tenant: string): number;
}

export function createNeedCounts(): NeedCounts {
  const tenants = new Map<string, Map<string, number>>();
  return {
    add(tenant, need) {
      const counts = tenants.get(tenant) ?? new Map<string, number>();
      tenants.set(tenant, counts.set(need, (counts.get(need) ?? 0) + 1));
    },
    remove(tenant, need) {
      const counts = tenants.get(tenant);
      const left = (counts?.get(need) ?? 1) - 1;
      if (left > 0) counts?.set(need, left);
      else counts?.delete(need);
    },
    has: (tenant, need) => tenants.get(tenant)?.has(need) ?? false,
    of: (tenant) => tenants.get(tenant)?.size ?? 0,
  };
}

/** Those with one need, by priority and then by age. */
interface Line<W extends Waiter> {
  readonly tenant: string;
  readonly need: string;
  readonly service: string;
  group: Group<W> | undefined;
  /** How many of each priority. */
  readonly sizes: Map<number, number>;
  add(waiter: W): void;
  remove(waiter: W): void;
  isEmpty(): boolean;
  first(): W | undefined;
  /** The oldest of each priority. */
  heads(): W[];
}

/** One that has left stays in its lane until it is at the head: a job that leaves is mostly there already. */
interface Place<W> {
  waiter: W;
  /** Of arrival. */
  order: number;
  hasLeft: boolean;
}

function createLine<W extends Waiter>(of: Pick<Line<W>, "tenant" | "need" | "service">): Line<W> {
  const places = new Map<string, Place<W>>();
  const lanes = new Map<number, TinyQueue<Place<W>>>();
  const sizes = new Map<number, number>();
  let arrivals = 0;
  /** Kept, because heaps of lines compare it again and again. */
  let first: W | undefined;

  function headOf(lane: TinyQueue<Place<W>>): W | undefined {
    while (lane.peek()?.hasLeft) lane.pop();
    return lane.peek()?.waiter;
  }

  function findFirst(): W | undefined {
    if (lanes.size === 0) return undefined;
    const lane = lanes.get(Math.max(...lanes.keys()));
    return lane && headOf(lane);
  }

  return {
    ...of,
    group: undefined,
    sizes,
    add(waiter) {
      const { jobId, priority } = waiter;
      grow(sizes, priority, 1);
      const lane = lanes.get(priority) ?? new TinyQueue<Place<W>>([], byAge);
      const place = { waiter, order: arrivals++, hasLeft: false };
      lanes.set(priority, lane);
      lane.push(place);
      places.set(jobId, place);
      first = findFirst();
    },
    remove({ jobId, priority }) {
      const place = places.get(jobId);
      const lane = lanes.get(priority);
      if (!place || !lane) return;
      places.delete(jobId);
      grow(sizes, priority, -1);
      place.hasLeft = true;
      if (!headOf(lane)) lanes.delete(priority);
      first = findFirst();
    },
    isEmpty: () => places.size === 0,
    first: () => first,
    heads: () => [...lanes.values()].flatMap((lane) => headOf(lane) ?? []),
  };
}

function byAge<W extends Waiter>(a: Place<W>, b: Place<W>): number {
  return a.waiter.createdAtMs - b.waiter.createdAtMs || a.order - b.order;
}

function isSooner<W extends Waiter>(a: Line<W>, b: Line<W>): boolean {
  const [one, other] = [a.first(), b.first()];
  if (!one || !other) return one !== undefined;
  if (one.priority !== other.priority) return one.priority > other.priority;
  return one.createdAtMs < other.createdAtMs;
}

function isSoonerGroup<W extends Waiter>(a: Group<W>, b: Group<W>): boolean {
  const [one, other] = [a.lines.first(), b.lines.first()];
  return one !== undefined && (other === undefined || isSooner(one, other));
}
