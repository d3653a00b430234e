/** The clock of this process, for local waits. Wall time is left out, because nothing here depends on it. */
export interface Clock {
  /** Milliseconds that only rise, also when the machine's clock is set. */
  monotonicMs(): number;
  /** Calls `act` once, `ms` from now. The returned function cancels it, and may be called late or twice. */
  after(ms: number, act: () => void): Cancel;
}

export type Cancel = () => void;

/** Timers turn anything longer into 1 ms. */
const TIMER_MAX_MS = 2_147_483_647;

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  after(ms, act) {
    const timer = setTimeout(act, Math.min(ms, TIMER_MAX_MS));
    return () => clearTimeout(timer);
  },
};
