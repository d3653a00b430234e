import { CLOSE_CODES, type ErrorCode, TenureError } from "@tenure/protocol";
import type { SocketClose } from "./socket.ts";

/** Why a connection ended, or could not be made. */
export interface Loss {
  kind: LossKind;
  /** For people. */
  reason: string;
  /** The close code of the socket, when that is what ended it. */
  code?: number;
  /** The server's error, or the meaning of its close code. Absent after a network failure. */
  error?: TenureError;
}

/** How long to wait: growing with jitter, almost not at all, or long because a retry is likely to fail as well. */
type Wait = "backoff" | "quick" | "slow";

const WAITS = {
  /** No connection was made. */
  unreachable: "backoff",
  /** It ended without a close frame, or with a code that has no special meaning. */
  lost: "backoff",
  /** Nothing arrived for two ping intervals. */
  silent: "backoff",
  /** It opened, but was not ready in time. */
  late: "backoff",
  /** The handshake failed in a way that may pass. */
  handshake: "backoff",
  /** The former session cannot be continued; the next attempt begins a new one. */
  resume_refused: "backoff",
  too_slow: "backoff",
  frame_too_large: "backoff",
  bad_frames: "backoff",
  /** The instance stops; another one is available, or this one will be soon. */
  stopping: "quick",
  /** The caller requested a new connection. */
  restarted: "quick",
  unauthenticated: "slow",
  forbidden: "slow",
  /** A newer connection replaced it, or another process has the address. */
  replaced: "slow",
  /** The server refuses this client, e.g. because of its version. */
  refused: "slow",
} as const satisfies Record<string, Wait>;
export type LossKind = keyof typeof WAITS;

export interface Backoff {
  baseMs: number;
  capMs: number;
  /** The longest wait after a refusal that needs an operator. The shortest is half of it. */
  slowMs: number;
  /** A connection that was ready for so long resets the count of failures. */
  stableMs: number;
}

export const BACKOFF: Backoff = {
  baseMs: 100,
  capMs: 10_000,
  slowMs: 30_000,
  stableMs: 10_000,
};

export interface Past {
  /** Failures in a row, from the former plan. */
  failures: number;
  /** Undefined when the connection was never ready. */
  readyForMs: number | undefined;
  /** How long the server still asks not to reconnect. */
  askedMs: number;
  /** At least 0, below 1. */
  random: number;
}

/**
 * Decides how long to wait before the next attempt. The wait is anything between zero and the limit (full jitter), because
 * a server that comes back must not get all its clients at once. For the same reason a wait that the server asks for is
 * extended by jitter: it asks the same of all clients.
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

/** Quick only if the connection was ready: a server that refuses every client as stopping would be called in a loop. */
function waitAfter(kind: LossKind, wasReady: boolean): Wait {
  const wait: Wait = WAITS[kind];
  return wait === "quick" && !wasReady ? "backoff" : wait;
}

/** The meaning of a close. */
export function lossOfClose(close: SocketClose, { opened, error }: CloseContext): Loss {
  const { kind, errorOf } = meaning(close, opened);
  // An old error does not explain a network failure; it only explains a close code that stands for an error.
  const cause = errorOf && (error ?? errorOf(close.reason || undefined));
  return {
    kind,
    reason: cause?.message ?? (close.reason || `closed with ${close.code}`),
    code: close.code,
    ...(cause && { error: cause }),
  };
}

interface CloseContext {
  opened: boolean;
  /** The last error that the server sent about this connection. */
  error?: TenureError | undefined;
}

/** The meaning of a failed handshake: the server's error, or an error of this side. */
export function lossOfHandshake(error: unknown): Loss {
  const known: TenureError =
    error instanceof TenureError ? error : new TenureError("INTERNAL", {}, { cause: error });
  const kind: LossKind = REFUSALS[known.code] ?? "handshake";
  return { kind, reason: known === error ? known.message : String(error), error: known };
}

/** Errors in the handshake that a retry would repeat. Any other may pass. */
const REFUSALS: Partial<Record<ErrorCode, LossKind>> = {
  UNAUTHENTICATED: "unauthenticated",
  FORBIDDEN: "forbidden",
  NODE_ADDRESS_IN_USE: "replaced",
  UNSUPPORTED_VERSION: "refused",
  INVALID_MESSAGE: "refused",
};

interface Meaning {
  kind: LossKind;
  errorOf?: (reason: string | undefined) => TenureError;
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
    errorOf: (reason = "a frame was over the limit") =>
      new TenureError("INVALID_MESSAGE", { reason }),
  },
  [CLOSE_CODES.BAD_FRAMES]: {
    kind: "bad_frames",
    errorOf: (reason = "the server could not parse frames of this client") =>
      new TenureError("INVALID_MESSAGE", { reason }),
  },
  [CLOSE_CODES.UNAUTHENTICATED]: {
    kind: "unauthenticated",
    errorOf: (reason = "the server refused the token or the signature") =>
      new TenureError("UNAUTHENTICATED", { reason }),
  },
  [CLOSE_CODES.WRONG_ROLE]: {
    kind: "forbidden",
    errorOf: (reason = "the role of the token is not allowed on this socket") =>
      new TenureError("FORBIDDEN", { reason }),
  },
  [CLOSE_CODES.REPLACED]: {
    kind: "replaced",
    errorOf: (
      reason = "a newer connection replaced this one, or another process has the address",
    ) => new TenureError("CONFLICT", { reason }),
  },
};
