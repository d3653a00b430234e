import type { Cancel, Clock } from "../clock.ts";

export interface Liveness {
  /** Something arrived from the peer. */
  alive(): void;
  stop(): void;
}

/**
 * Detects a dead peer by messages that it answers, for pages, whose timers may be late: in the background they run once a
 * minute. So the time counts from a ping without an answer, not from the last sign of life.
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
  /** When the first ping was sent that nothing arrived after. */
  let pingedAtMs: number | undefined;
  let cancel: Cancel = clock.after(pingEveryMs, pingOrGiveUp);

  function pingOrGiveUp(): void {
    const nowMs = clock.monotonicMs();
    if (pingedAtMs !== undefined && nowMs - pingedAtMs >= answerWithinMs) {
      onSilent(nowMs - pingedAtMs);
      return;
    }
    pingedAtMs ??= nowMs;
    ping();
    cancel = clock.after(pingEveryMs, pingOrGiveUp);
  }

  return {
    alive() {
      pingedAtMs = undefined;
    },
    stop: () => cancel(),
  };
}

/**
 * Detects a dead peer by pings: a pulled cable or a frozen machine sends no close. The time counts from the last sign of
 * life and not in missed pings, which would take up to one interval longer.
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
  let aliveAtMs = clock.monotonicMs();
  let cancelPing: Cancel;
  let cancelCheck: Cancel;

  function pingRepeatedly(): void {
    ping();
    cancelPing = clock.after(pingEveryMs, pingRepeatedly);
  }

  function checkIn(ms: number): void {
    cancelCheck = clock.after(ms, () => {
      const silentForMs = clock.monotonicMs() - aliveAtMs;
      if (silentForMs >= silentMaxMs) onSilent(silentForMs);
      else checkIn(silentMaxMs - silentForMs);
    });
  }

  pingRepeatedly();
  checkIn(silentMaxMs);

  return {
    alive() {
      aliveAtMs = clock.monotonicMs();
    },
    stop() {
      cancelPing();
      cancelCheck();
    },
  };
}
