import { TenureError } from "@tenure/protocol";
import type { Clock } from "../kernel/clock.ts";

/** A token is named by its `tokenKey`. */
export interface SessionQuota {
  /** Throws `QUEUE_FULL` when the token has as many sessions as it may have here. */
  check(token: string): void;
  /** Counts a session until it has ended, or was away for `goneAfterMs`. */
  opened(token: string, sessionId: string): void;
  joined(token: string, sessionId: string): void;
  left(token: string, sessionId: string): void;
  ended(token: string, sessionId: string): void;
  /** Forgets sessions that were away for too long. */
  prune(): void;
}

/**
 * How many sessions each token has opened at this instance. One that is away counts too: its record is kept for it, so
 * opening and dropping sessions must not be free. A resumed session that was opened elsewhere is counted there.
 */
export function createSessionQuota(options: {
  /** 0 = no limit. */
  max: number;
  goneAfterMs: number;
  clock: Pick<Clock, "monotonicMs">;
}): SessionQuota {
  const { max, goneAfterMs, clock } = options;
  /** By token and session: until when it counts. */
  const tokens = new Map<string, Map<string, number>>();

  function pruneOf(token: string, sessions: Map<string, number>): void {
    const nowMs = clock.monotonicMs();
    for (const [sessionId, untilMs] of sessions) if (untilMs <= nowMs) sessions.delete(sessionId);
    if (sessions.size === 0) tokens.delete(token);
  }

  function setIfCounted(token: string, sessionId: string, untilMs: number): void {
    const sessions = tokens.get(token);
    if (sessions?.has(sessionId)) sessions.set(sessionId, untilMs);
  }

  return {
    check(token) {
      const sessions = tokens.get(token);
      if (max === 0 || !sessions || sessions.size < max) return;
      pruneOf(token, sessions);
      if (sessions.size >= max)
        throw new TenureError("QUEUE_FULL", { queue: "the sessions of this token", limit: max });
    },
    opened(token, sessionId) {
      const sessions = tokens.get(token) ?? new Map<string, number>();
      tokens.set(token, sessions.set(sessionId, Number.POSITIVE_INFINITY));
    },
    joined: (token, sessionId) => setIfCounted(token, sessionId, Number.POSITIVE_INFINITY),
    left: (token, sessionId) => setIfCounted(token, sessionId, clock.monotonicMs() + goneAfterMs),
    ended(token, sessionId) {
      const sessions = tokens.get(token);
      sessions?.delete(sessionId);
      if (sessions?.size === 0) tokens.delete(token);
    },
    prune() {
      for (const [token, sessions] of tokens) pruneOf(token, sessions);
    },
  };
}
