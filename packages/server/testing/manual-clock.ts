import type { Clock } from "../src/kernel/clock.ts";

export interface ManualClock extends Clock {
  advance(ms: number): void;
}

/** A clock that stands still until a test moves it; whoever sleeps wakes when their time has come. */
export function createManualClock(startMs: number = Date.now()): ManualClock {
  let nowMs = startMs;
  const sleepers = new Set<{ wakeAtMs: number; wake: () => void }>();

  return {
    monotonicMs: () => nowMs,
    wallMs: () => nowMs,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const sleeper = { wakeAtMs: nowMs + ms, wake };
        function wake() {
          sleepers.delete(sleeper);
          signal?.removeEventListener("abort", wake);
          resolve();
        }
        sleepers.add(sleeper);
        signal?.addEventListener("abort", wake, { once: true });
      }),
    advance(ms) {
      nowMs += ms;
      for (const sleeper of [...sleepers]) if (sleeper.wakeAtMs <= nowMs) sleeper.wake();
    },
  };
}
