import type { Timeline } from "../timeline.ts";

/** Somebody who does one thing after another; or several who share one line. */
export interface Queue {
  /** Resolves when it is done. What it costs is asked when it begins. */
  work(ms: number | (() => number)): Promise<void>;
  /** What waits or is done now. */
  readonly length: number;
  readonly busyMs: number;
  readonly waitMsMax: number;
  /** Counts anew from here. */
  reset(): void;
}

interface Work {
  ms: number | (() => number);
  cameMs: number;
  done: () => void;
}

export function createQueue(timeline: Timeline, workers = 1): Queue {
  let waiting: Work[] = [];
  let first = 0;
  let idle = workers;
  let busyMs = 0;
  let waitMsMax = 0;

  function begin({ ms, cameMs, done }: Work): void {
    const takesMs = typeof ms === "number" ? ms : ms();
    busyMs += takesMs;
    waitMsMax = Math.max(waitMsMax, timeline.monotonicMs() - cameMs);
    timeline.after(takesMs, () => {
      done();
      const next = takeNext();
      if (next) begin(next);
      else idle += 1;
    });
  }

  function takeNext(): Work | undefined {
    const next = waiting[first++];
    if (next) return next;
    waiting = [];
    first = 0;
    return undefined;
  }

  return {
    work: (ms) =>
      new Promise((done) => {
        const work = { ms, cameMs: timeline.monotonicMs(), done };
        if (idle === 0) waiting.push(work);
        else {
          idle -= 1;
          begin(work);
        }
      }),
    reset() {
      busyMs = 0;
      waitMsMax = 0;
    },
    get length() {
      return waiting.length - first + workers - idle;
    },
    get busyMs() {
      return busyMs;
    },
    get waitMsMax() {
      return waitMsMax;
    },
  };
}
