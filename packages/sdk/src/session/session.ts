import {
  type FinalizeReason,
  fromErrorMessage,
  SESSION_FEATURES,
  TenureError,
} from "@tenure/protocol";
import { systemClock } from "../clock.ts";
import type { ConnectionState, ConnectionTuning, Down } from "../connection/connection.ts";
import type { LossKind } from "../connection/retry.ts";
import { urlsOf } from "../connection/urls.ts";
import type { JobHandle } from "./job-handle.ts";
import {
  createSessionConnection,
  type SessionConnection,
  type SessionEvents,
  type SessionIncoming,
  type SessionResume,
} from "./session-connection.ts";
import { refusedHandle, type SubmitOptions } from "./submission.ts";
import { SUBMISSION_LIMITS, type SubmissionLimits, Submissions } from "./submissions.ts";
import type { TurnState } from "./turns.ts";

export interface SessionOptions extends ConnectionTuning, Partial<SubmissionLimits> {
  /** An instance, or several in order of preference. */
  url: string | readonly string[];
  token?: string | undefined;
  /** Credentials from `on.resume` or `session.resume`, to continue that session. */
  resume?: SessionResume | undefined;
  /** The server ends a turn with `timeout` after a pause of so long. */
  turnPauseMs?: number | undefined;
  on?: Omit<SessionEvents, "message" | "rejected">;
}

export interface TurnSubmitOptions extends SubmitOptions {
  /** This job is the last of its turn. */
  finalize?: FinalizeReason;
}

/**
 * Jobs that belong together. They go to one node while that is possible.
 *
 * `await using turn = session.turn()` ends it with its block.
 */
export interface Turn extends AsyncDisposable {
  /** The server's id of it, from its first accepted job on. */
  readonly id: string | undefined;
  /** How it ended; undefined while it is open. */
  readonly ended: FinalizeReason | undefined;
  submit<Body = unknown>(options: TurnSubmitOptions): JobHandle<Body>;
  /**
   * Takes no more jobs; those that were submitted continue. Resolves when the server has ended it. Rejects with
   * `DEPENDENCY_DOWN` after `patienceMs` without an answer; the request is retried until a server answers.
   */
  finalize(reason?: FinalizeReason): Promise<void>;
}

/**
 * A client that submits jobs. It connects at once and reconnects without limit. A job without an answer is submitted
 * again under the same request id, for which the server keeps one job.
 */
export class Session {
  readonly #connection: SessionConnection;
  readonly #submissions: Submissions;
  #isClosed = false;

  constructor(options: SessionOptions) {
    const { on = {}, clock = systemClock, random = Math.random } = options;
    const limits = { ...SUBMISSION_LIMITS, ...given(options) };
    const { patienceMs: _, outstandingMax: __, checkEveryMs: ___, ...tuning } = options;
    this.#connection = createSessionConnection({
      ...tuning,
      urls: urlsOf(options.url),
      features: SESSION_FEATURES,
      on: {
        ...on,
        ready: (ack, origin) => {
          this.#submissions.ready();
          on.ready?.(ack, origin);
        },
        down: (down) => {
          this.#giveUpIfRefused(down);
          on.down?.(down);
        },
        message: (message) => this.#receive(message, on),
        rejected: (value, error) => this.#submissions.unreadable(value, error),
      },
    });
    this.#submissions = new Submissions({ clock, random, limits, connection: this.#connection });
    this.#connection.start();
  }

  get state(): ConnectionState {
    return this.#connection.state;
  }

  /** Undefined until a server has accepted the session. */
  get id(): string | undefined {
    return this.#connection.resume?.session_id;
  }

  /** Credentials to continue this session in another process or after a reload. They are secret. */
  get resume(): SessionResume | undefined {
    return this.#connection.resume;
  }

  /**
   * Resolves with the result of a job that succeeded. Rejects with `JobFailed` when it ended otherwise, and with a
   * `TenureError` when no server accepted it.
   */
  submit<Body = unknown>(options: SubmitOptions): JobHandle<Body> {
    return this.#submissions.submit(options) as JobHandle<Body>;
  }

  /** Begins a turn and ends the one before it: a session has one turn at a time. */
  turn(): Turn {
    return createTurn(this.#submissions);
  }

  /** Ends the session. Jobs that have not ended continue without it; their promises are rejected. */
  async close(): Promise<void> {
    await this.#leave("closed", () => this.#connection.close());
  }

  /** Disconnects without ending the session, which can be continued with `resume`. */
  async detach(): Promise<void> {
    await this.#leave("left", () => this.#connection.detach());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #leave(how: string, leave: () => Promise<void>): Promise<void> {
    this.#submissions.flushAcks();
    const gone = leave();
    if (!this.#isClosed) {
      this.#isClosed = true;
      this.#submissions.close(new TenureError("CONFLICT", { reason: `the session was ${how}` }));
    }
    await gone;
  }

  #receive(message: SessionIncoming, on: Pick<SessionEvents, "problem">): void {
    if (message.type !== "error") this.#submissions.receive(message);
    else if (!this.#submissions.refused(message)) on.problem?.(fromErrorMessage(message));
  }

  /** A retry would be refused as well, so open jobs are rejected at once. The connection itself retries, slowly. */
  #giveUpIfRefused({ kind, error }: Down): void {
    if (error && PERMANENT.includes(kind)) this.#submissions.abandon(error);
  }
}

const TURN_ENDED = "the turn has ended; begin another with session.turn()";

const PERMANENT: readonly LossKind[] = ["unauthenticated", "forbidden", "refused"];

/** The limits that are not undefined. */
function given(options: SessionOptions): Partial<SubmissionLimits> {
  const { patienceMs, outstandingMax, checkEveryMs } = options;
  return {
    ...(patienceMs !== undefined && { patienceMs }),
    ...(outstandingMax !== undefined && { outstandingMax }),
    ...(checkEveryMs !== undefined && { checkEveryMs }),
  };
}

function createTurn(submissions: Submissions): Turn {
  const { turns } = submissions;
  const turn: TurnState = turns.begin();
  return {
    get id() {
      return turn.id;
    },
    get ended() {
      return turn.ended;
    },
    submit<Body>({ finalize, ...options }: TurnSubmitOptions) {
      const isOver = turn.endedBy !== undefined || turn.ended !== undefined;
      const handle = isOver
        ? refusedHandle(
            options.requestId ?? "",
            new TenureError("CONFLICT", { reason: TURN_ENDED }),
          )
        : submissions.submit(options, { turn, finalize });
      return handle as JobHandle<Body>;
    },
    finalize(reason = "manual") {
      return turns.finalize(turn, reason);
    },
    /** Not awaited: a server that is down must not block the caller. */
    async [Symbol.asyncDispose]() {
      turns.close(turn, "manual");
    },
  };
}
