import type { FinalizeReason } from "@tenure/protocol";
import type { SendOutcome } from "./link.ts";

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
  /** Resolves when it has ended, or nobody can end it any more. */
  readonly over: Promise<void>;
  leave(): void;
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
  /** The server knows of no turn to end. True when that was what we waited for. */
  unknown(): boolean;
  /** Says the end again where it is still unanswered: on a new connection, or after a while. */
  sayAgain(): void;
  abandon(): void;
}

/**
 * Keeps the order of turns over retries and reconnects. A turn ends only after the server has accepted all its jobs,
 * and the next one begins only after that end: a job that is tried again must not find itself in the turn after its
 * own, and no job may inherit the node of the speaker before.
 */
export function createTurns({
  say,
  moved,
}: {
  say: (reason: FinalizeReason) => SendOutcome;
  /** A turn has ended, or may be ended by its closing job: what waited may go. */
  moved: () => void;
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
    if (head.touched) say(head.closing);
    else end(head, head.closing);
  }

  function close(turn: TurnState, reason: FinalizeReason): void {
    if (turn.ended || (turn.closing && turn.closing !== "job")) return;
    turn.closing = reason;
    if (turn === line[0]) sayHead();
  }

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
    unknown() {
      const [head] = line;
      if (!head?.closing || head.closing === "job" || head.unaccepted > 0) return false;
      end(head, head.closing);
      return true;
    },
    sayAgain: sayHead,
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
  const unknown = { id: undefined, closing: undefined, ended: undefined };
  return { ...unknown, touched: false, unaccepted: 0, over, leave };
}

/** A turn whose end was asked for and whose name never reached us: the answer about an end is about it. */
const nameless = (turn: TurnState | undefined): TurnState | undefined =>
  turn?.id === undefined && turn?.closing && turn.closing !== "job" ? turn : undefined;
