import type { Timeline } from "../timeline.ts";

/** Somebody who does one thing after another; or several who share one line. */
export interface Queue {
  /** Resolves when it is done. */
  work(ms: number): Promise<void>;
  readonly busyMs: number;
  readonly waitMsMax: number;
  /** Counts anew from here. */
  reset(): void;
}

export function createQueue(timeline: Timeline, workers = 1): Queue {
  const freeAtMs = new Array<number>(workers).fill(0);
  let busyMs = 0;
  let waitMsMax = 0;
  return {
    work(ms) {
      const nowMs = timeline.monotonicMs();
      let first = 0;
      for (let worker = 1; worker < workers; worker++)
        if (freeAtMs[worker]! < freeAtMs[first]!) first = worker;
      const startMs = Math.max(nowMs, freeAtMs[first]!);
      freeAtMs[first] = startMs + ms;
      busyMs += ms;
      waitMsMax = Math.max(waitMsMax, startMs - nowMs);
      return timeline.sleep(startMs + ms - nowMs);
    },
    reset() {
      busyMs = 0;
      waitMsMax = 0;
    },
    get busyMs() {
      return busyMs;
    },
    get waitMsMax() {
      return waitMsMax;
    },
  };
}
