import TinyQueue from "tinyqueue";
import type { Clock } from "../../kernel/clock.ts";
import { every, type Service } from "../../kernel/service.ts";

/** Timers of this process, one per key. For an instance that dies, the recovery index finds the jobs they were set for. */
export interface Deadlines extends Service {
  /** In so many milliseconds from now; replaces the timer of this key. */
  set(key: string, inMs: number): void;
  clear(key: string): void;
  size(): number;
}

const GRAIN_MS = 20;

/**
 * One timer for any number of deadlines: keys are in buckets of 20 ms, so that setting and clearing cost the same with one as
 * with a hundred thousand. Most are cleared long before they are due.
 */
export function createDeadlines(options: {
  clock: Clock;
  onDue: (key: string) => void;
  onError: (error: unknown) => void;
}): Deadlines {
  const { clock, onDue } = options;
  const bucketOf = new Map<string, number>();
  const buckets = new Map<number, Set<string>>();
  /** The buckets, earliest first, each once. A bucket that was emptied stays until it is at the front. */
  const order = new TinyQueue<number>();
  const ordered = new Set<number>();
  let nextBucket = Number.POSITIVE_INFINITY;

  const loop = every(() => pauseMs(), fire, options);

  function pauseMs(): number {
    nextBucket = earliest() ?? Number.POSITIVE_INFINITY;
    return Math.max(0, Math.min(nextBucket * GRAIN_MS - clock.monotonicMs(), 60_000));
  }

  function earliest(): number | undefined {
    for (let bucket = order.peek(); bucket !== undefined; bucket = order.peek()) {
      if (buckets.has(bucket)) return bucket;
      order.pop();
      ordered.delete(bucket);
    }
    return undefined;
  }

  async function fire(): Promise<void> {
    const now = Math.floor(clock.monotonicMs() / GRAIN_MS);
    for (let bucket = earliest(); bucket !== undefined && bucket <= now; bucket = earliest()) {
      const keys = buckets.get(bucket) ?? [];
      buckets.delete(bucket);
      for (const key of keys) {
        // Cleared or moved by the handler of a key before it.
        if (bucketOf.get(key) !== bucket) continue;
        bucketOf.delete(key);
        onDue(key);
      }
    }
  }

  function clear(key: string): void {
    const bucket = bucketOf.get(key);
    if (bucket === undefined) return;
    bucketOf.delete(key);
    const keys = buckets.get(bucket);
    keys?.delete(key);
    if (keys?.size === 0) buckets.delete(bucket);
  }

  return {
    start: () => loop.start(),
    stop: () => loop.stop(),
    clear,
    size: () => bucketOf.size,
    set(key, inMs) {
      clear(key);
      const bucket = Math.ceil((clock.monotonicMs() + inMs) / GRAIN_MS);
      bucketOf.set(key, bucket);
      const keys = buckets.get(bucket);
      if (keys) keys.add(key);
      else {
        buckets.set(bucket, new Set([key]));
        if (!ordered.has(bucket)) order.push(bucket);
        ordered.add(bucket);
      }
      if (bucket < nextBucket) loop.wake();
    },
  };
}
