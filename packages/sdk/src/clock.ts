/** Time as this process sees it, for local waits only. Wall time decides nothing here, so it is not offered. */
export interface Clock {
  /** Milliseconds that only rise, also when somebody sets the machine's clock. */
  monotonicMs(): number;
  /** Calls `act` once, `ms` from now. The answer takes it back, and may be called late or twice. */
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
