import { type FinalizeReason, fromErrorMessage, TenureError } from "@tenure/protocol";
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
import {
  createSubmissions,
  SUBMISSION_LIMITS,
  type SubmissionLimits,
  type Submissions,
} from "./submissions.ts";
import type { TurnState } from "./turns.ts";

export interface SessionOptions extends ConnectionTuning, Partial<SubmissionLimits> {
  /** An instance, or several in order of preference. */
  url: string | readonly string[];
  token?: string | undefined;
  /** What `on.resume` or `session.resume` gave earlier: the way back into that session. */
  resume?: SessionResume | undefined;
  /** Ask the server to end a turn with `timeout` after this pause. */
  turnPauseMs?: number | undefined;
  on?: Omit<SessionEvents, "message" | "rejected">;
}

export interface TurnSubmitOptions extends SubmitOptions {
  /** This job is the last of its turn. */
  finalize?: FinalizeReason;
}

/**
 * Jobs that belong together, said by one speaker in one go: they go to one node while that is possible.
 *
 * `await using turn = session.turn()` ends it with its block.
 */
export interface Turn extends AsyncDisposable {
  /** The server's name for it, once it has accepted its first job. */
  readonly id: string | undefined;
  /** How it ended; undefined while it is open. */
  readonly ended: FinalizeReason | undefined;
  submit<Body = unknown>(options: TurnSubmitOptions): JobHandle<Body>;
  /**
   * Takes no more jobs; those that were submitted go on. Resolves when the server has ended it. Rejects with
   * `DEPENDENCY_DOWN` after `patienceMs` without an answer; the end is still sent until a server answers.
   */
  finalize(reason?: FinalizeReason): Promise<void>;
}

/**
 * A client that submits jobs. It connects at once, and again for as long as it takes: what was submitted and not
 * answered is submitted again under the same request id, which is the same job.
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
        message: (message) => this.#heard(message, on),
        rejected: (value, error) => this.#submissions.unreadable(value, error),
      },
    });
    this.#submissions = createSubmissions({
      clock,
      random,
      limits,
      send: (message) => this.#connection.send(message),
      sendFrame: (frame) => this.#connection.sendFrame(frame),
    });
    this.#connection.start();
  }

  get state(): ConnectionState {
    return this.#connection.state;
  }

  /** Undefined until a server has taken it in. */
  get id(): string | undefined {
    return this.#connection.resume?.session_id;
  }

  /** The way back into this session, for another process or after a reload. Keep it like a password. */
  get resume(): SessionResume | undefined {
    return this.#connection.resume;
  }

  /**
   * Resolves with the result of a job that went well. Rejects with `JobFailed` when it ended otherwise, and with a
   * `TenureError` when no server took it.
   */
  submit<Body = unknown>(options: SubmitOptions): JobHandle<Body> {
    return this.#submissions.submit(options) as JobHandle<Body>;
  }

  /** A session has one turn at a time: the one before ends where this one begins. */
  turn(): Turn {
    return createTurn(this.#submissions);
  }

  /** Ends the session. Jobs that have not ended go on without it; their promises are rejected. */
  async close(): Promise<void> {
    await this.#leave("closed", () => this.#connection.close());
  }

  /** Goes away without ending the session: with `resume` somebody can continue it. */
  async detach(): Promise<void> {
    await this.#leave("left", () => this.#connection.detach());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #leave(how: string, leave: () => Promise<void>): Promise<void> {
    const gone = leave();
    if (!this.#isClosed) {
      this.#isClosed = true;
      this.#submissions.close(new TenureError("CONFLICT", { reason: `the session was ${how}` }));
    }
    await gone;
  }

  #heard(message: SessionIncoming, on: Pick<SessionEvents, "problem">): void {
    if (message.type !== "error") this.#submissions.heard(message);
    else if (!this.#submissions.refused(message)) on.problem?.(fromErrorMessage(message));
  }

  /** Asking again would change nothing, so nobody is kept waiting. The connection itself goes on trying, slowly. */
  #giveUpIfRefused({ kind, error }: Down): void {
    if (error && HOPELESS.includes(kind)) this.#submissions.abandon(error);
  }
}

const OVER = "the turn has ended; the next job needs a new one";

const HOPELESS: readonly LossKind[] = ["unauthenticated", "forbidden", "refused"];

/** What was given explicitly; `undefined` is not. */
function given(options: SessionOptions): Partial<SubmissionLimits> {
  const { patienceMs, outstandingMax, checkEveryMs } = options;
  return {
    ...(patienceMs !== undefined && { patienceMs }),
    ...(outstandingMax !== undefined && { outstandingMax }),
    ...(checkEveryMs !== undefined && { checkEveryMs }),
  };
}

function createTurn({ turns, submit }: Submissions): Turn {
  const turn: TurnState = turns.begin();
  return {
    get id() {
      return turn.id;
    },
    get ended() {
      return turn.ended;
    },
    submit<Body>({ finalize, ...options }: TurnSubmitOptions) {
      const isOver = turn.closing !== undefined || turn.ended !== undefined;
      const handle = isOver
        ? refusedHandle(options.requestId ?? "", new TenureError("CONFLICT", { reason: OVER }))
        : submit(options, { turn, finalize });
      return handle as JobHandle<Body>;
    },
    finalize(reason = "manual") {
      return turns.finalize(turn, reason);
    },
    /** Not waited for: a server that is away must not keep the block from ending. */
    async [Symbol.asyncDispose]() {
      turns.close(turn, "manual");
    },
  };
}
