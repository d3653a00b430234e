import type { Cancel, Clock } from "../clock.ts";

export interface Liveness {
  heard(): void;
  stop(): void;
}

/**
 * The same for a peer that is asked by messages, where timers may be late: a page in the background runs them once a minute.
 * So only a question that was not answered counts, not the time since the last sign of life.
 */
export function watchAnswers({
  clock,
  pingEveryMs,
  ping,
  onSilent,
}: {
  clock: Clock;
  pingEveryMs: number;
  ping: () => void;
  onSilent: (silentForMs: number) => void;
}): Liveness {
  const answerWithinMs = 2 * pingEveryMs;
  /** When the first question was asked that nothing was heard after. */
  let askedAtMs: number | undefined;
  let cancel: Cancel = clock.after(pingEveryMs, ask);

  function ask(): void {
    const nowMs = clock.monotonicMs();
    if (askedAtMs !== undefined && nowMs - askedAtMs >= answerWithinMs) {
      onSilent(nowMs - askedAtMs);
      return;
    }
    askedAtMs ??= nowMs;
    ping();
    cancel = clock.after(pingEveryMs, ask);
  }

  return {
    heard() {
      askedAtMs = undefined;
    },
    stop: () => cancel(),
  };
}

/**
 * Notices a peer that is gone without a word: a pulled cable or a frozen machine sends no close. Measured from the
 * last sign of life, not by counting ticks, which would add up to one more ping to the time it takes.
 */
export function watchLiveness({
  clock,
  pingEveryMs,
  ping,
  onSilent,
}: {
  clock: Clock;
  pingEveryMs: number;
  ping: () => void;
  onSilent: (silentForMs: number) => void;
}): Liveness {
  const silentMaxMs = 2 * pingEveryMs;
  let heardAtMs = clock.monotonicMs();
  let cancelPing: Cancel;
  let cancelCheck: Cancel;

  function pingOnAndOn(): void {
    ping();
    cancelPing = clock.after(pingEveryMs, pingOnAndOn);
  }

  function checkIn(ms: number): void {
    cancelCheck = clock.after(ms, () => {
      const silentForMs = clock.monotonicMs() - heardAtMs;
      if (silentForMs >= silentMaxMs) onSilent(silentForMs);
      else checkIn(silentMaxMs - silentForMs);
    });
  }

  pingOnAndOn();
  checkIn(silentMaxMs);

  return {
    heard() {
      heardAtMs = clock.monotonicMs();
    },
    stop() {
      cancelPing();
      cancelCheck();
    },
  };
}
