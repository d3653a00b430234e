import type { Cancel, Clock } from "@tenure/sdk";

/** Time that passes only from event to event. Nothing in it depends on the machine: the same seed is the same run. */
export interface Timeline extends Clock {
  sleep(ms: number): Promise<void>;
  /** Runs what is due until then, or until the condition holds after an event. Answers whether it does. */
  run(untilMs: number, until?: () => boolean): Promise<boolean>;
  readonly steps: number;
}

export interface TimelineOptions {
  /** For code that puts things off to the next turn of the event loop: turns to follow before time goes on. */
  turns?: number;
}

interface Timer {
  atMs: number;
  /** Of two at the same moment the one that was set first goes first. */
  order: number;
  act: (() => void) | undefined;
}

export function createTimeline({ turns = 1 }: TimelineOptions = {}): Timeline {
  const heap: Timer[] = [];
  let nowMs = 0;
  let order = 0;
  let steps = 0;

  function after(ms: number, act: () => void): Cancel {
    const timer: Timer = { atMs: nowMs + Math.max(0, ms), order: order++, act };
    push(heap, timer);
    return () => {
      timer.act = undefined;
    };
  }

  /** Every promise that can go on has gone on: Node turns to immediates only when no microtask is left. */
  async function promisesFollowed(): Promise<void> {
    for (let turn = 0; turn < turns; turn++)
      await new Promise<void>((resolve) => setImmediate(resolve));
  }

  return {
    monotonicMs: () => nowMs,
    after,
    sleep: (ms) => new Promise((resolve) => after(ms, resolve)),
    get steps() {
      return steps;
    },
    async run(untilMs, until) {
      await promisesFollowed();
      while (!until?.()) {
        const next = heap[0];
        if (!next || next.atMs > untilMs) {
          nowMs = Math.max(nowMs, untilMs);
          return until === undefined;
        }
        pop(heap);
        if (!next.act) continue;
        nowMs = next.atMs;
        steps += 1;
        next.act();
        await promisesFollowed();
      }
      return true;
    },
  };
}

const isBefore = (a: Timer, b: Timer): boolean =>
  a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);

function push(heap: Timer[], timer: Timer): void {
  let at = heap.length;
  heap.push(timer);
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (!isBefore(timer, heap[parent]!)) break;
    heap[at] = heap[parent]!;
    at = parent;
  }
  heap[at] = timer;
}

function pop(heap: Timer[]): void {
  const last = heap.pop()!;
  if (heap.length === 0) return;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
    if (!isBefore(heap[child]!, last)) break;
    heap[at] = heap[child]!;
    at = child;
  }
  heap[at] = last;
}
