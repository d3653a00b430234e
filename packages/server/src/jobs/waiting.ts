import { createHeap, type Heap } from "../kernel/heap.ts";

/** A job that waits for a slot. */
export interface Waiter {
  readonly jobId: string;
  readonly pool: string;
  readonly priority: number;
  /** When it was submitted. A job that comes back from a lost node keeps its age. */
  readonly createdAtMs: number;
  /** What it needs besides the pool. Of those with the same need, either all can be placed now or none. */
  readonly need: string;
}

export interface WaitingRoom<W extends Waiter> {
  /** One that is in it already stays where it is. How many may come in is judged at the door, before a job exists. */
  add(waiter: W): void;
  remove(jobId: string): W | undefined;
  has(jobId: string): boolean;
  size(): number;
  sizeOf(pool: string): number;
  pools(): string[];
  all(): Iterable<W>;
  /** When the one was submitted that waits for the longest time; `undefined` when nobody waits. */
  oldestMs(): number | undefined;
  /**
   * Offers those of a pool to `place`, highest priority first and then oldest first. Whom `place` takes is out;
   * after a refusal nobody else with the same need is offered.
   */
  serve(pool: string, place: (waiter: W) => boolean): void;
}

/**
 * Who waits for a slot, on this instance. It is a cache of records that are CREATED: losing it loses nothing.
 *
 * By need, because a job that wants a service no free node has must not hold up the others behind it.
 */
export function createWaitingRoom<W extends Waiter>(): WaitingRoom<W> {
  const places = new Map<string, W>();
  const pools = new Map<string, Map<string, Line<W>>>();
  const sizes = new Map<string, number>();

  const sizeOf = (pool: string): number => sizes.get(pool) ?? 0;

  function remove(jobId: string): W | undefined {
    const waiter = places.get(jobId);
    if (!waiter) return undefined;
    places.delete(jobId);
    const lines = pools.get(waiter.pool);
    const line = lines?.get(waiter.need);
    line?.remove(waiter);
    if (line?.isEmpty()) lines?.delete(waiter.need);
    sizes.set(waiter.pool, sizeOf(waiter.pool) - 1);
    if (lines?.size === 0) {
      pools.delete(waiter.pool);
      sizes.delete(waiter.pool);
    }
    return waiter;
  }

  return {
    remove,
    sizeOf,
    has: (jobId) => places.has(jobId),
    size: () => places.size,
    pools: () => [...pools.keys()],
    all: () => places.values(),
    add(waiter) {
      const { jobId, pool, need } = waiter;
      if (places.has(jobId)) return;
      const lines = pools.get(pool) ?? new Map<string, Line<W>>();
      const line = lines.get(need) ?? createLine<W>();
      pools.set(pool, lines.set(need, line));
      line.add(waiter);
      places.set(jobId, waiter);
      sizes.set(pool, sizeOf(pool) + 1);
    },
    oldestMs() {
      let oldest: number | undefined;
      for (const lines of pools.values())
        for (const line of lines.values())
          for (const { createdAtMs } of line.heads())
            if (oldest === undefined || createdAtMs < oldest) oldest = createdAtMs;
      return oldest;
    },
    serve(pool, place) {
      const open = new Map(pools.get(pool));
      while (open.size > 0) {
        const heads = [...open.values()].flatMap((line) => line.first() ?? []);
        const next = heads.reduce<W | undefined>(sooner, undefined);
        if (!next) return;
        if (!place(next)) open.delete(next.need);
        else if (remove(next.jobId) && open.get(next.need)?.isEmpty()) open.delete(next.need);
      }
    },
  };
}

/** Those with one need, by priority and then by age. */
interface Line<W> {
  add(waiter: W): void;
  remove(waiter: W): void;
  isEmpty(): boolean;
  first(): W | undefined;
  /** The oldest of each priority. */
  heads(): W[];
}

/** One that has left stays in its lane until it is at the head: whoever leaves is mostly there already. */
interface Place<W> {
  waiter: W;
  /** Of arrival. */
  order: number;
  hasLeft: boolean;
}

function createLine<W extends Waiter>(): Line<W> {
  const places = new Map<string, Place<W>>();
  const lanes = new Map<number, Heap<Place<W>>>();
  let arrivals = 0;

  function headOf(lane: Heap<Place<W>>): W | undefined {
    while (lane.first()?.hasLeft) lane.pop();
    return lane.first()?.waiter;
  }

  return {
    add(waiter) {
      const { jobId, priority } = waiter;
      const lane = lanes.get(priority) ?? createHeap<Place<W>>(isOlder);
      const place = { waiter, order: arrivals++, hasLeft: false };
      lanes.set(priority, lane);
      lane.push(place);
      places.set(jobId, place);
    },
    remove({ jobId, priority }) {
      const place = places.get(jobId);
      const lane = lanes.get(priority);
      if (!place || !lane) return;
      places.delete(jobId);
      place.hasLeft = true;
      if (!headOf(lane)) lanes.delete(priority);
    },
    isEmpty: () => places.size === 0,
    first() {
      if (lanes.size === 0) return undefined;
      const lane = lanes.get(Math.max(...lanes.keys()));
      return lane && headOf(lane);
    },
    heads: () => [...lanes.values()].flatMap((lane) => headOf(lane) ?? []),
  };
}

function isOlder<W extends Waiter>(a: Place<W>, b: Place<W>): boolean {
  const apartMs = a.waiter.createdAtMs - b.waiter.createdAtMs;
  return apartMs === 0 ? a.order < b.order : apartMs < 0;
}

function sooner<W extends Waiter>(a: W | undefined, b: W): W {
  if (!a) return b;
  if (a.priority !== b.priority) return a.priority > b.priority ? a : b;
  return b.createdAtMs < a.createdAtMs ? b : a;
}
