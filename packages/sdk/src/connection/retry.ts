import { CLOSE_CODES, type ErrorCode, TenureError } from "@tenure/protocol";
import type { SocketClose } from "./socket.ts";

/** Why a connection ended, or did not come about. */
export interface Loss {
  kind: LossKind;
  /** For people. */
  reason: string;
  /** The close code of the socket, when that is what ended it. */
  code?: number;
  /** What the server said, or what its close code means. Absent when the network just failed. */
  error?: TenureError;
}

/** How long to stay away: a growing jittered wait, next to none, or long because asking again changes nothing. */
type Wait = "backoff" | "quick" | "slow";

const WAITS = {
  /** No connection came about. */
  unreachable: "backoff",
  /** It ended without a word, or with one that says nothing special. */
  lost: "backoff",
  /** Nothing was heard for two pings. */
  silent: "backoff",
  /** It opened, but was not ready in time. */
  late: "backoff",
  /** The first words went wrong in a way that may pass. */
  handshake: "backoff",
  /** The session before this one cannot be continued; the next attempt is for a new one. */
  resume_refused: "backoff",
  too_slow: "backoff",
  frame_too_large: "backoff",
  bad_frames: "backoff",
  /** The instance stops; another one, or this one soon, is there. */
  stopping: "quick",
  /** Its own user asked for a new connection. */
  restarted: "quick",
  unauthenticated: "slow",
  forbidden: "slow",
  /** A newer connection took its place, or another process holds the address. */
  replaced: "slow",
  /** The server will not have us as we are: our version, say. */
  refused: "slow",
} as const satisfies Record<string, Wait>;
export type LossKind = keyof typeof WAITS;

export interface Backoff {
  baseMs: number;
  capMs: number;
  /** The longest wait after a refusal that only a person can end. The shortest is half of it. */
  slowMs: number;
  /** A connection that held for so long owes nothing to the failures before it. */
  stableMs: number;
}

export const BACKOFF: Backoff = {
  baseMs: 100,
  capMs: 10_000,
  slowMs: 30_000,
  stableMs: 10_000,
};

export interface Past {
  /** In a row, as the plan before this one gave them. */
  failures: number;
  /** Undefined when the connection never was ready. */
  readyForMs: number | undefined;
  /** How long the server still wants us to stay away. */
  askedMs: number;
  /** At least 0, below 1. */
  random: number;
}

/**
 * How long to wait before the next attempt. Full jitter: anything between nothing and the limit, because what
 * hurts a server that comes back is that all its clients agree on the moment. For the same reason a wait that the
 * server asks for is kept, and then spread: it asks the same of everybody.
 */
export function planRetry(
  { kind }: Loss,
  past: Past,
  backoff: Backoff = BACKOFF,
): { waitMs: number; failures: number } {
  const failures = (past.readyForMs ?? 0) >= backoff.stableMs ? 0 : past.failures;
  const limitMs = Math.min(backoff.capMs, backoff.baseMs * 2 ** failures);
  const askedMs = Math.max(0, past.askedMs);
  const wait = waitAfter(kind, past.readyForMs !== undefined);
  const jitterMs = { slow: backoff.slowMs / 2, quick: backoff.baseMs, backoff: limitMs }[wait];
  const leastMs = Math.max(askedMs, wait === "slow" ? backoff.slowMs / 2 : 0);
  const spreadMs = Math.max(jitterMs, Math.min(askedMs, backoff.capMs));
  return {
    waitMs: leastMs + spreadMs * past.random,
    failures: wait === "backoff" ? failures + 1 : failures,
  };
}

/** Quick only after work was done: a server that greets everybody with "I stop" would be called in a loop. */
function waitAfter(kind: LossKind, wasReady: boolean): Wait {
  const wait: Wait = WAITS[kind];
  return wait === "quick" && !wasReady ? "backoff" : wait;
}

/** What a close means. `told` is the last error the server sent about this connection, if any. */
export function lossOfClose(close: SocketClose, { opened, told }: CloseContext): Loss {
  const { kind, error } = meaning(close, opened);
  // An error told long ago is not why the network failed now; only a close that means one is explained by it.
  const cause = error && (told ?? error(close.reason || undefined));
  return {
    kind,
    reason: cause?.message ?? (close.reason || `closed with ${close.code}`),
    code: close.code,
    ...(cause && { error: cause }),
  };
}

export interface CloseContext {
  opened: boolean;
  told?: TenureError | undefined;
}

/** What a failed handshake means: the server's own error, or whatever broke on our side. */
export function lossOfHandshake(error: unknown): Loss {
  const told: TenureError =
    error instanceof TenureError ? error : new TenureError("INTERNAL", {}, { cause: error });
  const kind: LossKind = REFUSALS[told.code] ?? "handshake";
  return { kind, reason: told === error ? told.message : String(error), error: told };
}

/** Errors in the handshake that will be the same next time. Any other may pass. */
const REFUSALS: Partial<Record<ErrorCode, LossKind>> = {
  UNAUTHENTICATED: "unauthenticated",
  FORBIDDEN: "forbidden",
  NODE_ADDRESS_IN_USE: "replaced",
  UNSUPPORTED_VERSION: "refused",
  INVALID_MESSAGE: "refused",
};

interface Meaning {
  kind: LossKind;
  error?: (reason: string | undefined) => TenureError;
}

function meaning({ code, status }: SocketClose, opened: boolean): Meaning {
  if (status === 401) return CLOSES[CLOSE_CODES.UNAUTHENTICATED] as Meaning;
  if (status === 403) return CLOSES[CLOSE_CODES.WRONG_ROLE] as Meaning;
  return CLOSES[code] ?? { kind: opened ? "lost" : "unreachable" };
}

const CLOSES: Record<number, Meaning> = {
  [CLOSE_CODES.INSTANCE_STOPPING]: { kind: "stopping" },
  [CLOSE_CODES.TOO_SLOW]: { kind: "too_slow" },
  [CLOSE_CODES.FRAME_TOO_LARGE]: {
    kind: "frame_too_large",
    error: (reason = "a frame was over the limit") =>
      new TenureError("INVALID_MESSAGE", { reason }),
  },
  [CLOSE_CODES.BAD_FRAMES]: {
    kind: "bad_frames",
    error: (reason = "the server could not read what we sent") =>
      new TenureError("INVALID_MESSAGE", { reason }),
  },
  [CLOSE_CODES.UNAUTHENTICATED]: {
    kind: "unauthenticated",
    error: (reason = "the server accepts neither token nor signature") =>
      new TenureError("UNAUTHENTICATED", { reason }),
  },
  [CLOSE_CODES.WRONG_ROLE]: {
    kind: "forbidden",
    error: (reason = "the token's role does not belong on this socket") =>
      new TenureError("FORBIDDEN", { reason }),
  },
  [CLOSE_CODES.REPLACED]: {
    kind: "replaced",
    error: (reason = "a newer connection took its place, or another process holds the address") =>
      new TenureError("CONFLICT", { reason }),
  },
};
