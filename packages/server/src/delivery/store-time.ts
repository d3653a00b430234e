import type { Clock } from "../kernel/clock.ts";

/** The store's time, which deadlines of messages are compared with. */
export interface StoreTime {
  /** Asks the store. */
  read(): Promise<number>;
  /** The time by what the store answered last; `undefined` if that was too long ago. */
  estimateMs(): number | undefined;
}

/** A slower answer is out of date. */
const PROMPT_MS_MAX = 500;
/** How long an answer is used. Instances read the time about once per second. */
const TRUST_MS = 10_000;

export function createStoreTime(clock: Clock, read: () => Promise<number>): StoreTime {
  let offsetMs = 0;
  let readMs = Number.NEGATIVE_INFINITY;
  return {
    async read() {
      const sentMs = clock.monotonicMs();
      const nowMs = await read();
      const answeredMs = clock.monotonicMs();
      if (answeredMs - sentMs <= PROMPT_MS_MAX) {
        offsetMs = nowMs - answeredMs;
        readMs = answeredMs;
      }
      return nowMs;
    },
    estimateMs() {
      const nowMs = clock.monotonicMs();
      return nowMs - readMs <= TRUST_MS ? nowMs + offsetMs : undefined;
    },
  };
}
