import type { Clock } from "../src/clock.ts";

export interface ManualClock extends Clock {
  /** Advances the time and runs the timers that fall due, in order. */
  advance(ms: number): void;
  /** Suspends the process for so long; then every due timer runs at once. */
  freeze(ms: number): void;
  /** Number of pending timers. */
  readonly timers: number;
}

/** A clock that stands still until a test moves it. */
export function createManualClock(startMs = 1_000_000): ManualClock {
  let nowMs = startMs;
  const timers = new Set<{ atMs: number; act: () => void }>();

  function nextDue(untilMs: number) {
    const due = [...timers].filter(({ atMs }) => atMs <= untilMs);
    return due.sort((a, b) => a.atMs - b.atMs)[0];
  }

  const clock: ManualClock = {
    monotonicMs: () => nowMs,
    get timers() {
      return timers.size;
    },
    after(ms, act) {
      const timer = { atMs: nowMs + ms, act };
      timers.add(timer);
      return () => timers.delete(timer);
    },
    advance(ms) {
      const untilMs = nowMs + ms;
      for (let timer = nextDue(untilMs); timer; timer = nextDue(untilMs)) {
        nowMs = Math.max(nowMs, timer.atMs);
        timers.delete(timer);
        timer.act();
      }
      nowMs = untilMs;
    },
    freeze(ms) {
      nowMs += ms;
      clock.advance(0);
    },
  };
  return clock;
}
