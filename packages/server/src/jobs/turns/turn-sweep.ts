import { every, type Service } from "../../kernel/service.ts";
import { readSession } from "../../membership/store/session-store.ts";
import type { JobsParts } from "../parts.ts";
import { isStoreDown } from "../store-errors.ts";
import { forgetTurns, readTurn, takeTurns } from "./turn-store.ts";

const SWEPT_MAX = 500;
/** Longer than the store takes to open a turn that is noted. */
const OPENING_MS = 10_000;

/** Ends turns whose session is gone, and turns whose closing job was lost. */
export function createTurnSweep(
  {
    hot,
    clock,
    log,
    metrics,
    settings,
  }: Pick<JobsParts, "hot" | "clock" | "log" | "metrics" | "settings">,
  {
    checkInMs,
    end,
  }: { checkInMs: number; end: (turnId: string, sessionId: string) => Promise<void> },
): Service {
  const closingMs = 2 * (settings.pendingTimeoutMs + settings.ackTimeoutMs);
  /** By turn: when the sweep first found it not opened, or not its session's current one. */
  const suspectSinceMs = new Map<string, number>();

  async function sweep(): Promise<void> {
    const turnIds = await takeTurns(hot, { countMax: SWEPT_MAX, checkInMs });
    const left = await Promise.all(turnIds.map(sweepOne));
    metrics.turnsLeft(left.filter(Boolean).length);
    const oldMs = clock.monotonicMs() - 2 * closingMs;
    for (const [turnId, sinceMs] of suspectSinceMs)
      if (sinceMs < oldMs) suspectSinceMs.delete(turnId);
  }

  /** `true` if the turn should have ended and could not. */
  async function sweepOne(turnId: string): Promise<boolean> {
    const turn = await readTurn(hot, turnId);
    if (!turn && !isSinceLong(turnId, OPENING_MS)) return false; // it may be about to be opened
    if (!turn || turn.ended) {
      await forgetTurns(hot, [turnId]);
      return false;
    }
    const session = await readSession(hot, turn.sessionId);
    if (session && !isLongClosed(turnId, session.currentTurnId)) return false;
    try {
      await end(turnId, turn.sessionId);
      return false;
    } catch (error) {
      if (isStoreDown(error)) return true;
      throw error;
    }
  }

  /** The closing job may wait for a slot for a while; after that it was placed, has ended, or is lost. */
  function isLongClosed(turnId: string, currentTurnId: string | null): boolean {
    return currentTurnId !== turnId && isSinceLong(turnId, closingMs);
  }

  function isSinceLong(turnId: string, limitMs: number): boolean {
    const nowMs = clock.monotonicMs();
    const sinceMs = suspectSinceMs.get(turnId) ?? nowMs;
    suspectSinceMs.set(turnId, sinceMs);
    return nowMs - sinceMs > limitMs;
  }

  return every(checkInMs, sweep, {
    clock,
    onError: (error) =>
      log.warn({ event: "turns.not-swept", error }, "could not sweep turns; will retry"),
  });
}
