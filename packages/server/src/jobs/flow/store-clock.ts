import type { Clock } from "../../kernel/clock.ts";
import type { Call } from "../../store/call.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { isStoreDown } from "../store-errors.ts";

/** The time of the hot store, and when the store was last down. */
export interface StoreClock {
  /** The store's time as far as this instance knows it, for deadlines of messages, which are generous. */
  nowMs(): number;
  /** Asks the store. */
  read(): Promise<number>;
  /** When the store was last found down, by the monotonic clock; `-Infinity` if never. */
  lastOutageMs(): number;
}

/** A slower answer is not used: it is out of date. */
const PROMPT_MS_MAX = 500;
/** The store is down when no call was answered for so long. */
const DOWN_AFTER_MS = 1_000;

/**
 * Wraps the store to notice outages. A store that still answers other calls is not down: on a Cluster one master may be down
 * for long, and the deadlines of waiting jobs must not wait for it.
 */
export function watchStore(
  store: HotStore,
  { clock, readMs }: { clock: Clock; readMs: () => Promise<number> },
): { hot: HotStore; storeClock: StoreClock } {
  let outageMs = Number.NEGATIVE_INFINITY;
  let answeredMs = clock.monotonicMs();
  // Relative to the monotonic clock. Until the store has answered, this machine's time is the best guess.
  let offsetMs = clock.wallMs() - clock.monotonicMs();
  const answered = () => {
    answeredMs = clock.monotonicMs();
  };
  const failed = (error: unknown) => {
    const nowMs = clock.monotonicMs();
    if (isStoreDown(error) && nowMs - answeredMs >= DOWN_AFTER_MS) outageMs = nowMs;
  };
  const watched = <C extends Call>(call: C): C => {
    call.reply.then(answered, failed);
    return call;
  };
  // In memory there are no outages.
  const hot: HotStore =
    store.kind === "memory"
      ? store
      : {
          ...store,
          run(script, keys, args) {
            const reply = store.run(script, keys, args);
            reply.then(answered, failed);
            return reply;
          },
          start: (script, keys, args) => watched(store.start(script, keys, args)),
          startIf: (when, script, keys, args) => watched(store.startIf(when, script, keys, args)),
        };
  return {
    hot,
    storeClock: {
      nowMs: () => Math.floor(clock.monotonicMs() + offsetMs),
      async read() {
        const sentMs = clock.monotonicMs();
        const nowMs = await readMs();
        const receivedMs = clock.monotonicMs();
        if (receivedMs - sentMs < PROMPT_MS_MAX) offsetMs = nowMs - receivedMs;
        return nowMs;
      },
      lastOutageMs: () => outageMs,
    },
  };
}
