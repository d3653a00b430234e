import {
  type ErrorCode,
  grantedOf,
  PROTOCOL_VERSION,
  SESSION_FEATURES,
  ServerToSession,
  type SessionFeature,
  type SessionToServer,
  type TenureError,
} from "@tenure/protocol";
import type {
  Connection,
  ConnectionState,
  ConnectionTuning,
  Down,
} from "../connection/connection.ts";
import type { Greeting } from "../connection/handshake.ts";
import type { SendOutcome } from "../connection/link.ts";
import { createOutages } from "../connection/mover.ts";
import { createConnection } from "../connection/reconnecting.ts";
import type { Loss } from "../connection/retry.ts";

/** Credentials to continue a session. They are secret: a holder of them is the session. */
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

/** `lost`: the server refused the former session; its turn and its undelivered results are gone. */
export type SessionOrigin = "new" | "resumed" | "lost";

export interface SessionEvents {
  ready?(ack: SessionAck, origin: SessionOrigin): void;
  /** The credentials have changed. An application that stores them can resume after a restart or a reload. */
  resume?(resume: SessionResume): void;
  message?(message: SessionIncoming): void;
  down?(down: Down): void;
  state?(state: ConnectionState): void;
  problem?(error: TenureError): void;
  /** The JSON of a frame that is not a message. */
  rejected?(value: unknown, error: TenureError): void;
}

export interface SessionConnectionOptions extends ConnectionTuning {
  urls: readonly string[];
  token?: string | undefined;
  /** Credentials from `on.resume`. */
  resume?: SessionResume | undefined;
  /** The server ends a turn with `timeout` after a pause of so long. */
  turnPauseMs?: number | undefined;
  /** Features to ask the server for (docs/protocol.md). Without them it sends what every client understands. */
  features?: readonly SessionFeature[] | undefined;
  on?: SessionEvents;
}

export interface SessionConnection {
  readonly state: ConnectionState;
  readonly resume: SessionResume | undefined;
  /** Whether the server grants the feature on the present connection. */
  isGranted(feature: SessionFeature): boolean;
  start(): void;
  send(message: SessionOutgoing): SendOutcome;
  /** Like `send`, for a message that is serialized already. */
  sendFrame(frame: string): SendOutcome;
  /** Disconnects without ending the session, which can be continued with `resume`. */
  detach(): Promise<void>;
  /** Ends the session for good. */
  close(): Promise<void>;
}

export function createSessionConnection(options: SessionConnectionOptions): SessionConnection {
  const { on = {} } = options;
  let { resume } = options;
  let granted: readonly SessionFeature[] = [];
  /** The credentials of the handshake that is under way. */
  let offered: SessionResume | undefined;
  /** They were refused. The next handshake goes without them, which shows whether the token was the cause. */
  let isRefused = false;

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
      offered = isRefused ? undefined : resume;
      return init(greeting, { ...options, resume: offered });
    },
    pingMessage: ({ session_ping }) => (session_ping ? { type: "session_ping" } : undefined),
    judge(loss, wasReady) {
      const last = offered;
      offered = undefined;
      if (wasReady || !isRefusal(loss)) return loss;
      isRefused = last !== undefined;
      return isRefused ? { ...loss, kind: "resume_refused" } : loss;
    },
    on: {
      ready(ack) {
        const { session_id, resume_token, features } = ack;
        granted = grantedOf(SESSION_FEATURES, features);
        const origin = originOf(session_id, resume);
        const moved = resume?.session_id !== session_id || resume.resume_token !== resume_token;
        resume = { session_id, resume_token };
        isRefused = false;
        if (moved) on.resume?.(resume);
        on.ready?.(ack, origin);
      },
      down: (down) => on.down?.(down),
      message(message) {
        if (message.type === "error") outages.answered(message.code);
        else if (message.type === "job_accepted") outages.answered(undefined);
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
    isGranted: (feature) => granted.includes(feature),
    start: connection.start,
    send: connection.send,
    sendFrame: connection.sendFrame,
    detach: () => connection.close(),
    close: () => connection.close({ type: "session_close" }),
  };
}

async function init(
  { send, expect }: Greeting<ServerToSession, SessionToServer>,
  { token, resume, turnPauseMs, features }: SessionConnectionOptions,
): Promise<SessionAck> {
  send({
    type: "session_init",
    protocol_version: PROTOCOL_VERSION,
    ...(token !== undefined && { token }),
    ...resume,
    ...(turnPauseMs !== undefined && { turn_pause_ms: turnPauseMs }),
    ...(features && { features: [...features] }),
  });
  return expect("session_init_ack");
}

function originOf(session_id: string, before: SessionResume | undefined): SessionOrigin {
  if (!before) return "new";
  return before.session_id === session_id ? "resumed" : "lost";
}

/** Codes that may concern the offered credentials. Passing errors are left out: they must not cost a session. */
const REFUSALS: readonly ErrorCode[] = [
  "UNAUTHENTICATED",
  "FORBIDDEN",
  "NOT_FOUND",
  "CONFLICT",
  "INVALID_MESSAGE",
];

/** Not when replaced: then the session continues on a newer connection. */
const isRefusal = ({ kind, error }: Loss): boolean =>
  kind !== "replaced" && error !== undefined && REFUSALS.includes(error.code);
