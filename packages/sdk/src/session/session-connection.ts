import {
  type ErrorCode,
  PROTOCOL_VERSION,
  ServerToSession,
  type SessionToServer,
  type TenureError,
} from "@tenure/protocol";
import {
  type Connection,
  type ConnectionState,
  type ConnectionTuning,
  createConnection,
  type Down,
} from "../connection/connection.ts";
import type { Greeting } from "../connection/handshake.ts";
import type { SendOutcome } from "../connection/link.ts";
import { createOutages } from "../connection/outages.ts";
import type { Loss } from "../connection/retry.ts";

/** The way back into a session. Whoever has it is the session: keep it like a password. */
export interface SessionResume {
  session_id: string;
  resume_token: string;
}

export type SessionAck = Extract<ServerToSession, { type: "session_init_ack" }>;
export type SessionIncoming = Exclude<
  ServerToSession,
  { type: "session_init_ack" | "session_pong" | "go_away" }
>;
export type SessionOutgoing = Exclude<
  SessionToServer,
  { type: "session_init" | "session_ping" | "session_close" }
>;

/** `lost`: the session before this one was refused, and with it are gone its turn and what was undelivered. */
export type SessionOrigin = "new" | "resumed" | "lost";

export interface SessionEvents {
  ready?(ack: SessionAck, origin: SessionOrigin): void;
  /** The way back has changed. An application that keeps it can resume after a restart or a reload. */
  resume?(resume: SessionResume): void;
  message?(message: SessionIncoming): void;
  down?(down: Down): void;
  state?(state: ConnectionState): void;
  problem?(error: TenureError): void;
  /** The JSON of a frame that was no message. */
  rejected?(value: unknown, error: TenureError): void;
}

export interface SessionConnectionOptions extends ConnectionTuning {
  urls: readonly string[];
  token?: string | undefined;
  /** What `on.resume` gave earlier. */
  resume?: SessionResume | undefined;
  /** Ask the server to end a turn with `timeout` after this pause. */
  turnPauseMs?: number | undefined;
  on?: SessionEvents;
}

export interface SessionConnection {
  readonly state: ConnectionState;
  readonly resume: SessionResume | undefined;
  start(): void;
  send(message: SessionOutgoing): SendOutcome;
  /** The same, for a message that is JSON already. */
  sendFrame(frame: string): SendOutcome;
  /** Goes away without ending the session, which may be resumed with `resume`. */
  detach(): Promise<void>;
  /** Ends the session for good. */
  close(): Promise<void>;
}

export function createSessionConnection(options: SessionConnectionOptions): SessionConnection {
  const { on = {} } = options;
  let { resume } = options;
  let asked: SessionResume | undefined;
  /** The way back was refused. Once without it tells whether it was that, or the token. */
  let refused = false;

  const outages = createOutages(() => connection);
  const connection: Connection<SessionToServer> = createConnection<
    ServerToSession,
    SessionToServer,
    SessionAck
  >({
    ...options,
    path: "/ws/session",
    incoming: ServerToSession,
    handshake: (greeting) => {
      asked = refused ? undefined : resume;
      return init(greeting, { ...options, resume: asked });
    },
    pingMessage: ({ session_ping }) => (session_ping ? { type: "session_ping" } : undefined),
    judge(loss, wasReady) {
      const offered = asked;
      asked = undefined;
      if (wasReady || !isRefusal(loss)) return loss;
      refused = offered !== undefined;
      return refused ? { ...loss, kind: "resume_refused" } : loss;
    },
    on: {
      ready(ack) {
        const { session_id, resume_token } = ack;
        const origin = originOf(session_id, resume);
        const moved = resume?.session_id !== session_id || resume.resume_token !== resume_token;
        resume = { session_id, resume_token };
        refused = false;
        if (moved) on.resume?.(resume);
        on.ready?.(ack, origin);
      },
      down: (down) => on.down?.(down),
      message(message) {
        if (message.type === "error") outages.heard(message.code);
        else if (message.type === "job_accepted") outages.heard(undefined);
        if (
          message.type !== "session_init_ack" &&
          message.type !== "session_pong" &&
          message.type !== "go_away"
        )
          on.message?.(message);
      },
      rejected: (value, error) => on.rejected?.(value, error),
      problem: (error) => on.problem?.(error),
      state: (state) => on.state?.(state),
    },
  });

  return {
    get state() {
      return connection.state;
    },
    get resume() {
      return resume;
    },
    start: connection.start,
    send: connection.send,
    sendFrame: connection.sendFrame,
    detach: () => connection.close(),
    close: () => connection.close({ type: "session_close" }),
  };
}

async function init(
  { send, expect }: Greeting<ServerToSession, SessionToServer>,
  { token, resume, turnPauseMs }: SessionConnectionOptions,
): Promise<SessionAck> {
  send({
    type: "session_init",
    protocol_version: PROTOCOL_VERSION,
    ...(token !== undefined && { token }),
    ...resume,
    ...(turnPauseMs !== undefined && { turn_pause_ms: turnPauseMs }),
  });
  return expect("session_init_ack");
}

function originOf(session_id: string, before: SessionResume | undefined): SessionOrigin {
  if (!before) return "new";
  return before.session_id === session_id ? "resumed" : "lost";
}

/** Codes that may mean the way back that was offered. A hiccup of the server is not among them: it must not cost a session. */
const REFUSALS: readonly ErrorCode[] = [
  "UNAUTHENTICATED",
  "FORBIDDEN",
  "NOT_FOUND",
  "CONFLICT",
  "INVALID_MESSAGE",
];

/** Not when replaced: then the session lives, in another connection that came after this one. */
const isRefusal = ({ kind, error }: Loss): boolean =>
  kind !== "replaced" && error !== undefined && REFUSALS.includes(error.code);
