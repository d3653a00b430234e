import TinyQueue from "tinyqueue";
import type { Clock } from "../../kernel/clock.ts";
import { every, type Service } from "../../kernel/service.ts";

/** Local alarms, one per key. The due index finds what an instance that dies would have been woken for. */
export interface Deadlines extends Service {
  /** In so many milliseconds from now; replaces what was set for this key. */
  set(key: string, inMs: number): void;
  clear(key: string): void;
  size(): number;
}

const GRAIN_MS = 20;

/**
 * One timer for any number of deadlines: keys lie in buckets of 20 ms, so setting and clearing cost the same
 * with one as with a hundred thousand. Most are cleared long before they are due.
 */
export function createDeadlines(options: {
  clock: Clock;
  onDue: (key: string) => void;
  onError: (error: unknown) => void;
}): Deadlines {
  const { clock, onDue } = options;
  const bucketOf = new Map<string, number>();
  const buckets = new Map<number, Set<string>>();
  /** The buckets, the earliest first and each once. One that was emptied meanwhile stays until it is at the front. */
  const order = new TinyQueue<number>();
  const ordered = new Set<number>();
  let alarm = Number.POSITIVE_INFINITY;

  const loop = every(() => pauseMs(), ring, options);

  function pauseMs(): number {
    alarm = earliest() ?? Number.POSITIVE_INFINITY;
    return Math.max(0, Math.min(alarm * GRAIN_MS - clock.monotonicMs(), 60_000));
  }

  function earliest(): number | undefined {
    for (let bucket = order.peek(); bucket !== undefined; bucket = order.peek()) {
      if (buckets.has(bucket)) return bucket;
      order.pop();
      ordered.delete(bucket);
    }
    return undefined;
  }

  async function ring(): Promise<void> {
    const now = Math.floor(clock.monotonicMs() / GRAIN_MS);
    for (let bucket = earliest(); bucket !== undefined && bucket <= now; bucket = earliest()) {
      const keys = buckets.get(bucket) ?? [];
      buckets.delete(bucket);
      for (const key of keys) {
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
      if (bucket < alarm) loop.wake();
    },
  };
}
