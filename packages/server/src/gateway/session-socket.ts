import type { Duplex } from "node:stream";
import {
  CLOSE_CODES,
  PROTOCOL_VERSION,
  type ServerToSession,
  SessionToServer,
  TenureError,
  toErrorMessage,
} from "@tenure/protocol";
import type { WebSocket } from "ws";
import type { SessionConnection, Sessions } from "../membership/sessions.ts";
import { closeCodeOf, type SocketPrincipal } from "./admission.ts";
import { type FrameLimits, speak } from "./frames.ts";

export interface SessionSocketOptions {
  instanceId: string;
  sessions: Sessions;
  identify: (token: string | undefined) => SocketPrincipal | undefined;
  headerToken: string | undefined;
  limits?: FrameLimits | undefined;
  /** What the socket writes to. */
  stream?: Duplex | undefined;
}

const INIT_LIMIT_MS = 10_000;

/** One session's socket: it says who it is, then every message is one call. */
export function acceptSession(socket: WebSocket, options: SessionSocketOptions): void {
  const { instanceId, sessions } = options;
  let session: SessionConnection | undefined;
  let starting = false;

  const link = speak<SessionToServer, ServerToSession>(socket, {
    schema: SessionToServer,
    handlers: {
      receive: (message) => (session ? receive(session, message) : init(message)),
      closed() {
        clearTimeout(impatience);
        void session?.left().catch(() => {});
      },
    },
    limits: options.limits,
    stream: options.stream,
  });
  const impatience = setTimeout(
    () => link.close(CLOSE_CODES.UNAUTHENTICATED, "no session_init in time"),
    INIT_LIMIT_MS,
  );

  async function init(message: SessionToServer): Promise<void> {
    if (message.type !== "session_init" || starting) {
      throw new TenureError("INVALID_MESSAGE", {
        reason: `${message.type} before session_init was answered`,
      });
    }
    starting = true;
    try {
      const { tenant } = admit(message, options.identify(message.token ?? options.headerToken));
      const { session_id, resume_token = "" } = message;
      const resume = session_id ? { sessionId: session_id, resumeToken: resume_token } : undefined;
      const joined = await sessions.join({ tenant, resume }, link);
      if (socket.readyState !== socket.OPEN) return await joined.left();
      session = joined;
      clearTimeout(impatience);
      link.send({
        type: "session_init_ack",
        session_id: joined.sessionId,
        resume_token: joined.resumeToken,
        instance_id: instanceId,
        protocol_version: PROTOCOL_VERSION,
      });
    } catch (error) {
      link.send(toErrorMessage(error));
      link.close(closeCodeOf(error), "not let in");
    }
  }

  async function receive(current: SessionConnection, message: SessionToServer): Promise<void> {
    switch (message.type) {
      case "session_init":
        throw new TenureError("INVALID_MESSAGE", { reason: "session_init was said already" });
      case "session_close":
        await current.end();
        session = undefined;
        socket.close(1000, "done");
        return;
      case "job_submit":
        throw new TenureError("NO_AVAILABLE_NODE", { pool: message.pool });
      case "job_result_ack":
      case "job_cancel":
        throw new TenureError("NOT_FOUND", { what: "job", id: message.job_id });
      case "turn_finalize":
        throw new TenureError("NOT_FOUND", { what: "turn of session", id: current.sessionId });
    }
  }
}

function admit(
  { protocol_version }: { protocol_version: number },
  principal: SocketPrincipal | undefined,
): SocketPrincipal {
  if (protocol_version !== PROTOCOL_VERSION) {
    throw new TenureError("UNSUPPORTED_VERSION", {
      offered: protocol_version,
      supported: PROTOCOL_VERSION,
    });
  }
  if (!principal) throw new TenureError("UNAUTHENTICATED", { reason: "a valid token is needed" });
  if (principal.role !== "session" && principal.role !== "admin") {
    throw new TenureError("FORBIDDEN", { reason: `role ${principal.role} may not open a session` });
  }
  return principal;
}
