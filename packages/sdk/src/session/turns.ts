import type { FinalizeReason, TenureError } from "@tenure/protocol";
import type { SendOutcome } from "../connection/link.ts";
import { randomId } from "../random-id.ts";

/** One turn, as the session knows it. */
export interface TurnState {
  /** The server's id of it, from its first accepted job on. */
  id: string | undefined;
  /** A job of it was sent. A turn that the server does not know needs no end. */
  isSent: boolean;
  /** Jobs of it that the server has not accepted yet, without the one that ends it. */
  unaccepted: number;
  /** What ends it: its last job, or a `turn_finalize` with this reason. Undefined while it takes jobs. */
  endedBy: "job" | FinalizeReason | undefined;
  ended: FinalizeReason | undefined;
  /** The request id of its `turn_finalize`, which an error about it repeats. */
  readonly endId: string;
  /** When its `turn_finalize` was last sent on this connection, and after how long to send it again. */
  endSentAtMs: number | undefined;
  endRetryMs: number;
  endFailures: number;
  /** Calls of `finalize` that wait. */
  readonly waiters: Set<Waiter>;
  /** Resolves when it has ended, or the session is closed. */
  readonly left: Promise<void>;
  leave(): void;
}

interface Waiter {
  sinceMs: number;
  reject(error: TenureError): void;
}

/** A `turn_finalize` without an answer is sent again after so long. */
const END_RETRY_MS = 5_000;
const PAUSE_MS = { base: 250, cap: 5_000 } as const;

interface TurnsOptions {
  nowMs: () => number;
  sendFinalize: (reason: FinalizeReason, requestId: string) => SendOutcome;
  /** A turn has ended, or may be ended by its last job: waiting jobs may be sent. */
  onUnblocked: () => void;
  /** A turn waits for its end: `resend` must be called from time to time. */
  onEnding: () => void;
}

/**
 * Keeps the order of turns over retries and reconnects. A turn ends only after the server has accepted all its jobs, and
 * the next one begins only after that end: a job that is sent again must not land in the turn after its own, and no
 * job may get the node of the turn before.
 *
 * The server has one turn at a time. It is the first of the line; the others wait behind it. A turn takes jobs
 * (`endedBy` undefined), is ending (`endedBy` set), and leaves the line when it has ended (`ended` set).
 */
export class Turns {
  readonly #line: TurnState[] = [];
  readonly #options: TurnsOptions;

  constructor(options: TurnsOptions) {
    this.#options = options;
  }

  /** Begins a turn and ends the one before it: a session has one turn at a time. */
  begin(): TurnState {
    const last = this.#line.at(-1);
    if (last && !last.endedBy) {
      if (!last.isSent && last.unaccepted === 0) this.end(last, "manual");
      else this.close(last, "manual");
    }
    const turn = createTurnState();
    this.#line.push(turn);
    return turn;
  }

  /** Whether a job of this turn may be sent now. */
  maySend(turn: TurnState, isLast: boolean): boolean {
    // A job left over from a turn that the server has ended opens a turn of its own.
    if (turn.ended) return true;
    return turn === this.#line[0] && (!isLast || turn.unaccepted === 0);
  }

  /** A job of the turn was accepted or has left it: the turn may end now. */
  advance(turn: TurnState): void {
    if (turn !== this.#line[0]) return;
    if (turn.endedBy === "job" && turn.unaccepted === 0) this.#options.onUnblocked();
    else this.#finalizeFirst();
  }

  /** Takes no more jobs, and ends the turn as soon as the server has accepted all its jobs. */
  close(turn: TurnState, reason: FinalizeReason): void {
    if (turn.ended || isFinalizing(turn)) return;
    turn.endedBy = reason;
    if (turn === this.#line[0]) this.#finalizeFirst();
    if (!turn.ended) this.#options.onEnding();
  }

  /** The turn has ended. */
  end(turn: TurnState, reason: FinalizeReason): void {
    if (turn.ended) return;
    turn.ended = reason;
    turn.leave();
    const at = this.#line.indexOf(turn);
    if (at >= 0) this.#line.splice(at, 1);
    this.#options.onUnblocked();
    this.#finalizeFirst();
  }

  finalized({ turn_id, reason }: { turn_id: string; reason: FinalizeReason }): void {
    const [first] = this.#line;
    // The id of a turn may never have arrived; then the end that was requested is this one.
    const unnamed = first?.id === undefined && first && isFinalizing(first) ? first : undefined;
    const turn = this.#line.find(({ id }) => id === turn_id) ?? unnamed;
    if (turn) this.end(turn, reason);
  }

  /** Closes the turn. Rejects after `patienceMs` without an answer; the `turn_finalize` is still retried. */
  finalize(turn: TurnState, reason: FinalizeReason): Promise<void> {
    this.close(turn, reason);
    const answered = new Promise<void>((resolve, reject) => {
      turn.waiters.add({ sinceMs: this.#options.nowMs(), reject });
      void turn.left.then(resolve);
    });
    // A caller that does not await it sees the failure at the next job.
    answered.catch(() => {});
    return answered;
  }

  /** The server refused to end a turn. False when the error concerns something else. */
  refused(error: TenureError, requestId: string | undefined): boolean {
    // A server of release 0.1.0 names no request in its error.
    if (requestId === undefined) return error.code === "NOT_FOUND" && this.#endUnknown();
    const turn = this.#line.find(({ endId }) => endId === requestId);
    if (!turn) return requestId.startsWith(END_ID);
    if (error.code === "NOT_FOUND")
      this.end(turn, turn.endedBy === "timeout" ? "timeout" : "manual");
    else {
      const pauseMs = Math.min(PAUSE_MS.cap, PAUSE_MS.base * 2 ** turn.endFailures++);
      const leastMs = (error.details as { retry_after_ms?: number }).retry_after_ms ?? 0;
      turn.endSentAtMs = this.#options.nowMs();
      turn.endRetryMs = Math.max(pauseMs, leastMs);
    }
    return true;
  }

  /** Sends an unanswered `turn_finalize` again when its retry is due; on a new connection at once. */
  resend(connection: "same" | "new"): void {
    if (connection === "new") for (const turn of this.#line) turn.endSentAtMs = undefined;
    this.#finalizeFirst();
  }

  /** Whether a `turn_finalize` is still to be answered. */
  isEnding(): boolean {
    return this.#line.some(isFinalizing);
  }

  /** Rejects the calls of `finalize` that have waited for so long, or all. */
  rejectWaiting(error: TenureError, patienceMs = 0): void {
    const nowMs = this.#options.nowMs();
    for (const { waiters } of this.#line)
      for (const waiter of waiters)
        if (nowMs - waiter.sinceMs >= patienceMs) {
          waiters.delete(waiter);
          waiter.reject(error);
        }
  }

  /** Extends the patience of waiting calls by the time for which the process was suspended. */
  extend(suspendedMs: number): void {
    for (const { waiters } of this.#line)
      for (const waiter of waiters) waiter.sinceMs += suspendedMs;
  }

  /** The session is closed: no turn ends any more. */
  abandon(): void {
    for (const turn of this.#line.splice(0)) turn.leave();
  }

  /** Only the first of the line may end: for the server the others have not begun. */
  #finalizeFirst(): void {
    const [first] = this.#line;
    if (!isReadyToFinalize(first)) return;
    if (!first.isSent) {
      this.end(first, first.endedBy);
      return;
    }
    const { nowMs, sendFinalize } = this.#options;
    if (first.endSentAtMs !== undefined && nowMs() - first.endSentAtMs < first.endRetryMs) return;
    if (sendFinalize(first.endedBy, first.endId) !== "sent") return;
    first.endSentAtMs = nowMs();
    first.endRetryMs = END_RETRY_MS;
  }

  #endUnknown(): boolean {
    const [first] = this.#line;
    if (!isReadyToFinalize(first)) return false;
    this.end(first, first.endedBy);
    return true;
  }
}

/** Prefix of the request id of a `turn_finalize`, so that a late error about one is not taken for a job's. */
const END_ID = "turn_finalize:";

type Finalizing = TurnState & { endedBy: FinalizeReason };

const isFinalizing = (turn: TurnState): turn is Finalizing =>
  turn.endedBy !== undefined && turn.endedBy !== "job";

const isReadyToFinalize = (turn: TurnState | undefined): turn is Finalizing =>
  turn !== undefined && isFinalizing(turn) && turn.unaccepted === 0;

function createTurnState(): TurnState {
  let leave = () => {};
  const left = new Promise<void>((resolve) => {
    leave = resolve;
  });
  return {
    ...{ id: undefined, endedBy: undefined, ended: undefined },
    ...{ isSent: false, unaccepted: 0 },
    ...{ endId: `${END_ID}${randomId()}`, endSentAtMs: undefined, endRetryMs: 0, endFailures: 0 },
    ...{ waiters: new Set<Waiter>(), left, leave },
  };
}
