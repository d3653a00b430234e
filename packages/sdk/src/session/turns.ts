import type { FinalizeReason, TenureError } from "@tenure/protocol";
import type { SendOutcome } from "../connection/link.ts";
import { randomId } from "../random-id.ts";

/** One turn as this side knows it. The server has one at a time; the others wait behind it. */
export interface TurnState {
  /** The server's name for it, once it has accepted a job of it. */
  id: string | undefined;
  /** Whether the server may have heard of it. One that it has not needs no end. */
  touched: boolean;
  /** Jobs of it that the server has not accepted yet, its closing one not counted. */
  unaccepted: number;
  /** Who ends it: nobody yet, its closing job, or a `turn_finalize`. */
  closing: "job" | FinalizeReason | undefined;
  ended: FinalizeReason | undefined;
  /** The name of its `turn_finalize`, which an error about it repeats. */
  readonly endId: string;
  /** When its `turn_finalize` was last sent on this connection, and when to send it again. */
  endSaidMs: number | undefined;
  endAgainMs: number;
  endFailures: number;
  /** Calls of `finalize` that wait. */
  readonly waiters: Set<Waiter>;
  /** Resolves when it has ended, or nobody can end it any more. */
  readonly over: Promise<void>;
  leave(): void;
}

interface Waiter {
  sinceMs: number;
  reject(error: TenureError): void;
}

export interface Turns {
  /** A session has one turn at a time: this one begins where the one before it ends. */
  begin(): TurnState;
  /** Whether a job of this turn may be sent now. */
  mayGo(turn: TurnState, isClosing: boolean): boolean;
  /** Something about its jobs has changed: perhaps it may end now. */
  step(turn: TurnState): void;
  close(turn: TurnState, reason: FinalizeReason): void;
  end(turn: TurnState, reason: FinalizeReason): void;
  finalized(message: { turn_id: string; reason: FinalizeReason }): void;
  /** Ends it as `close` does. Rejects after `patienceMs` without an answer; the end is said on. */
  finalize(turn: TurnState, reason: FinalizeReason): Promise<void>;
  /** The server refused to end a turn. False when the error is about something else. */
  refused(error: TenureError, requestId: string | undefined): boolean;
  /** Says the end again where it is still unanswered and its time has come; on a new connection at once. */
  sayAgain(connection: "same" | "new"): void;
  /** Whether a `turn_finalize` is still to be answered. */
  isEnding(): boolean;
  /** Rejects the calls of `finalize` that have waited for so long, or all. */
  giveUpWaiting(error: TenureError, patienceMs?: number): void;
  /** The process was stopped for so long, and could not be answered meanwhile. */
  forgive(stoppedMs: number): void;
  abandon(): void;
}

/** A `turn_finalize` without an answer is sent again after so long. */
const END_AGAIN_MS = 5_000;
const PAUSE_MS = { base: 250, cap: 5_000 } as const;

/**
 * Keeps the order of turns over retries and reconnects. A turn ends only after the server has accepted all its jobs,
 * and the next one begins only after that end: a job that is tried again must not find itself in the turn after its
 * own, and no job may inherit the node of the speaker before.
 */
export function createTurns({
  nowMs,
  say,
  moved,
  closing,
}: {
  nowMs: () => number;
  say: (reason: FinalizeReason, requestId: string) => SendOutcome;
  /** A turn has ended, or may be ended by its closing job: what waited may go. */
  moved: () => void;
  /** A turn waits for its end: `sayAgain` must be called from time to time. */
  closing: () => void;
}): Turns {
  const line: TurnState[] = [];

  function end(turn: TurnState, reason: FinalizeReason): void {
    if (turn.ended) return;
    turn.ended = reason;
    turn.leave();
    const at = line.indexOf(turn);
    if (at >= 0) line.splice(at, 1);
    moved();
    sayHead();
  }

  /** Only the first of the line may end: the others have not begun for the server. */
  function sayHead(): void {
    const [head] = line;
    if (!head?.closing || head.closing === "job" || head.unaccepted > 0) return;
    if (!head.touched) {
      end(head, head.closing);
      return;
    }
    if (head.endSaidMs !== undefined && nowMs() - head.endSaidMs < head.endAgainMs) return;
    if (say(head.closing, head.endId) !== "sent") return;
    head.endSaidMs = nowMs();
    head.endAgainMs = END_AGAIN_MS;
  }

  function close(turn: TurnState, reason: FinalizeReason): void {
    if (turn.ended || (turn.closing && turn.closing !== "job")) return;
    turn.closing = reason;
    if (turn === line[0]) sayHead();
    if (!turn.ended) closing();
  }

  function unknown(): boolean {
    const [head] = line;
    if (!head?.closing || head.closing === "job" || head.unaccepted > 0) return false;
    end(head, head.closing);
    return true;
  }

  const isEnding = ({ closing }: TurnState): boolean => closing !== undefined && closing !== "job";

  return {
    begin() {
      const last = line.at(-1);
      if (last && !last.closing) {
        // Nobody ever heard of it: it may go without a word.
        if (!last.touched && last.unaccepted === 0) end(last, "manual");
        else close(last, "manual");
      }
      const turn = createTurnState();
      line.push(turn);
      return turn;
    },
    mayGo(turn, isClosing) {
      if (turn.ended) return true; // left over from a turn that the server has ended: it opens one of its own
      return turn === line[0] && (!isClosing || turn.unaccepted === 0);
    },
    step(turn) {
      if (turn !== line[0]) return;
      if (turn.closing === "job" && turn.unaccepted === 0) moved();
      else sayHead();
    },
    close,
    end,
    finalized({ turn_id, reason }) {
      const turn = line.find(({ id }) => id === turn_id) ?? nameless(line[0]);
      if (turn) end(turn, reason);
    },
    finalize(turn, reason) {
      close(turn, reason);
      const answered = new Promise<void>((resolve, reject) => {
        const waiter: Waiter = { sinceMs: nowMs(), reject };
        turn.waiters.add(waiter);
        void turn.over.then(resolve);
      });
      // A caller that does not wait leaves the failure to the next job.
      answered.catch(() => {});
      return answered;
    },
    refused(error, requestId) {
      // A server of release 0.1.0 names nothing in its error.
      if (requestId === undefined) return error.code === "NOT_FOUND" && unknown();
      const turn = line.find(({ endId }) => endId === requestId);
      if (!turn) return isEndId(requestId);
      if (error.code === "NOT_FOUND") end(turn, turn.closing === "timeout" ? "timeout" : "manual");
      else {
        const pauseMs = Math.min(PAUSE_MS.cap, PAUSE_MS.base * 2 ** turn.endFailures++);
        const asked = (error.details as { retry_after_ms?: number }).retry_after_ms ?? 0;
        turn.endSaidMs = nowMs();
        turn.endAgainMs = Math.max(pauseMs, asked);
      }
      return true;
    },
    sayAgain(connection) {
      if (connection === "new") for (const turn of line) turn.endSaidMs = undefined;
      sayHead();
    },
    isEnding: () => line.some(isEnding),
    giveUpWaiting(error, patienceMs = 0) {
      for (const { waiters } of line)
        for (const waiter of waiters)
          if (nowMs() - waiter.sinceMs >= patienceMs) {
            waiters.delete(waiter);
            waiter.reject(error);
          }
    },
    forgive(stoppedMs) {
      for (const { waiters } of line) for (const waiter of waiters) waiter.sinceMs += stoppedMs;
    },
    abandon() {
      for (const turn of line.splice(0)) turn.leave();
    },
  };
}

function createTurnState(): TurnState {
  let leave = () => {};
  const over = new Promise<void>((resolve) => {
    leave = resolve;
  });
  const unknown = { id: undefined, closing: undefined, ended: undefined, endSaidMs: undefined };
  const endId = `${END_ID}${randomId()}`;
  const end = { endId, endAgainMs: 0, endFailures: 0, waiters: new Set<Waiter>() };
  return { ...unknown, ...end, touched: false, unaccepted: 0, over, leave };
}

/** Before the name of a `turn_finalize`, so that a late error about one is not taken for a job's. */
const END_ID = "turn_finalize:";
const isEndId = (requestId: string): boolean => requestId.startsWith(END_ID);

/** A turn whose end was asked for and whose name never reached us: the answer about an end is about it. */
const nameless = (turn: TurnState | undefined): TurnState | undefined =>
  turn?.id === undefined && turn?.closing && turn.closing !== "job" ? turn : undefined;
