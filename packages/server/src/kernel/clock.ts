import { performance } from "node:perf_hooks";

/**
 * The time of this process: how long to wait, and how long to trust an answer. Leases are decided by the store's clock, never
 * by comparing the clocks of two machines.
 */
export interface Clock {
  /** Milliseconds that never go back, also when the machine's clock is set. */
  monotonicMs(): number;
  /** Wall time, for ids and for display. Never for a decision. */
  wallMs(): number;
  /** Resolves after `ms`, or at once when `signal` aborts. Never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The longest delay of a timer in Node; a longer one fires after 1 ms. */
const TIMER_MAX_MS = 2_147_483_647;

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const wake = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      const timer = setTimeout(wake, Math.min(ms, TIMER_MAX_MS));
      signal?.addEventListener("abort", wake, { once: true });
    }),
};
