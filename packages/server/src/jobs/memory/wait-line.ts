import TinyQueue from "tinyqueue";
import { createIndexedHeap, type IndexedHeap } from "../../kernel/heap.ts";

/** A job that waits for a slot. */
export interface Waiter {
  readonly jobId: string;
  readonly tenant: string;
  readonly pool: string;
  readonly service?: string | undefined;
  readonly priority: number;
  /** When it was submitted. A job that is retried keeps its age. */
  readonly createdMs: number;
  /** What it needs besides the pool. Either all jobs with the same need can be placed now, or none. */
  readonly need: string;
}

/** Lines of jobs that wait for the same service, or for the same node. */
export interface Group<W extends Waiter> {
  readonly key: string;
  /** The map it is in. */
  readonly groups: Map<string, Group<W>>;
  readonly lines: IndexedHeap<Line<W>>;
  /** Jobs by priority, also those of lines that are out of the heap for now. */
  readonly sizes: Map<number, number>;
}

/** Jobs with one need, by priority and then by age. */
export interface Line<W extends Waiter> {
  readonly tenant: string;
  readonly need: string;
  readonly service: string;
  group: Group<W> | undefined;
  /** Jobs by priority. */
  readonly sizes: Map<number, number>;
  add(waiter: W): void;
  remove(waiter: W): void;
  isEmpty(): boolean;
  first(): W | undefined;
  /** The oldest job of each priority. */
  heads(): W[];
}

/** A job that has left stays in its heap until it is at the head: mostly it is there already. */
interface Entry<W> {
  waiter: W;
  /** Order of arrival. */
  order: number;
  hasLeft: boolean;
}

export function createLine<W extends Waiter>(
  of: Pick<Line<W>, "tenant" | "need" | "service">,
): Line<W> {
  const entries = new Map<string, Entry<W>>();
  const byPriority = new Map<number, TinyQueue<Entry<W>>>();
  const sizes = new Map<number, number>();
  let arrivals = 0;
  /** Cached, because heaps of lines compare it often. */
  let first: W | undefined;

  function headOf(heap: TinyQueue<Entry<W>>): W | undefined {
    while (heap.peek()?.hasLeft) heap.pop();
    return heap.peek()?.waiter;
  }

  function findFirst(): W | undefined {
    if (byPriority.size === 0) return undefined;
    const heap = byPriority.get(Math.max(...byPriority.keys()));
    return heap && headOf(heap);
  }

  return {
    ...of,
    group: undefined,
    sizes,
    add(waiter) {
      const { jobId, priority } = waiter;
      grow(sizes, priority, 1);
      const heap = byPriority.get(priority) ?? new TinyQueue<Entry<W>>([], byAge);
      const entry = { waiter, order: arrivals++, hasLeft: false };
      byPriority.set(priority, heap);
      heap.push(entry);
      entries.set(jobId, entry);
      first = findFirst();
    },
    remove({ jobId, priority }) {
      const entry = entries.get(jobId);
      const heap = byPriority.get(priority);
      if (!entry || !heap) return;
      entries.delete(jobId);
      grow(sizes, priority, -1);
      entry.hasLeft = true;
      if (!headOf(heap)) byPriority.delete(priority);
      first = findFirst();
    },
    isEmpty: () => entries.size === 0,
    first: () => first,
    heads: () => [...byPriority.values()].flatMap((heap) => headOf(heap) ?? []),
  };
}

/** Puts the line into the group of this key, which is created if needed. */
export function joinGroup<W extends Waiter>(
  groups: Map<string, Group<W>>,
  key: string,
  line: Line<W>,
): Group<W> {
  const group = groups.get(key) ?? createGroup(key, groups);
  groups.set(key, group);
  group.lines.push(line);
  if (line.group !== group)
    for (const [priority, count] of line.sizes) grow(group.sizes, priority, count);
  line.group = group;
  return group;
}

/** Takes the line out of its group. An empty group is removed. */
export function leaveGroup<W extends Waiter>(line: Line<W>): void {
  const { group } = line;
  if (!group) return;
  group.lines.remove(line);
  for (const [priority, count] of line.sizes) grow(group.sizes, priority, -count);
  if (group.sizes.size === 0) group.groups.delete(group.key);
  line.group = undefined;
}

const createGroup = <W extends Waiter>(key: string, groups: Map<string, Group<W>>): Group<W> => ({
  key,
  groups,
  lines: createIndexedHeap<Line<W>>(isSooner),
  sizes: new Map(),
});

export function grow(sizes: Map<number, number>, priority: number, by: number): void {
  const size = (sizes.get(priority) ?? 0) + by;
  if (size > 0) sizes.set(priority, size);
  else sizes.delete(priority);
}

function byAge<W extends Waiter>(a: Entry<W>, b: Entry<W>): number {
  return a.waiter.createdMs - b.waiter.createdMs || a.order - b.order;
}

function isSooner<W extends Waiter>(a: Line<W>, b: Line<W>): boolean {
  const [one, other] = [a.first(), b.first()];
  if (!one || !other) return one !== undefined;
  if (one.priority !== other.priority) return one.priority > other.priority;
  return one.createdMs < other.createdMs;
}

export function isSoonerGroup<W extends Waiter>(a: Group<W>, b: Group<W>): boolean {
  const [one, other] = [a.lines.first(), b.lines.first()];
  return one !== undefined && (other === undefined || isSooner(one, other));
}
