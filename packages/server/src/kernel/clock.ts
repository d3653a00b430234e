import { performance } from "node:perf_hooks";

/**
 * Time as this process sees it. Leases never compare it with another machine's: the store's clock decides
 * those. What is left for a local clock is local: how long to wait, and how long to trust an answer.
 */
export interface Clock {
  /** Milliseconds that only rise, also when somebody sets the machine's clock. */
  monotonicMs(): number;
  /** Wall time, for ids and for people. Never for a decision. */
  wallMs(): number;
  /** Resolves after `ms`, or at once when `signal` aborts. It never rejects: a stop is no error. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** A timer of Node turns anything longer into 1 ms. */
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
