import type { Duplex } from "node:stream";
import {
  ANY_TENANT,
  CLOSE_CODES,
  grantedOf,
  PROTOCOL_VERSION,
  SESSION_FEATURES,
  type ServerToSession,
  TenureError,
  toErrorMessage,
} from "@tenure/protocol";
import type { WebSocket } from "ws";
import type { Principal } from "../access/principal.ts";
import { parseSessionMessage, type SessionMessage } from "../jobs/api/raw-json.ts";
import type { SessionJobs } from "../jobs/api/session-api.ts";
import { UpdateRequests } from "../jobs/memory/update-requests.ts";
import type { SessionConnection, Sessions } from "../membership/sessions.ts";
import { closeCodeOf } from "./admission.ts";
import { type FrameLimits, openMessageSocket } from "./message-socket.ts";

export interface SessionSocketOptions {
  instanceId: string;
  sessions: Sessions;
  jobs: SessionJobs;
  identify: (token: string | undefined) => Promise<Principal | undefined>;
  headerToken: string | undefined;
  /** Called with the reason before a socket that was not admitted is closed. */
  onRefused?: ((error: unknown) => void) | undefined;
  limits?: FrameLimits | undefined;
  /** The stream under the WebSocket. */
  stream?: Duplex | undefined;
}

const INIT_LIMIT_MS = 10_000;

/** The socket of one session: it is initialized, then every message is one call. */
export function acceptSession(socket: WebSocket, options: SessionSocketOptions): void {
  const { instanceId, sessions, jobs } = options;
  let session: SessionConnection | undefined;
  let starting = false;

  const link = openMessageSocket<SessionMessage, ServerToSession>(socket, {
    parse: parseSessionMessage,
    handlers: {
      // Answered while a store does not: otherwise the session would take this instance for dead.
      receiveAtOnce(message) {
        if (message.type !== "session_ping" || !session) return false;
        link.send({ type: "session_pong" });
        return true;
      },
      receive: (message) => (session ? receive(session, message) : init(message)),
      closed() {
        clearTimeout(impatience);
        if (session) void left(session);
      },
    },
    limits: options.limits,
    anyFrameIsLife: true,
    stream: options.stream,
  });
  const impatience = setTimeout(
    () => link.close(CLOSE_CODES.UNAUTHENTICATED, "no session_init within 10 s"),
    INIT_LIMIT_MS,
  );

  async function init(message: SessionMessage): Promise<void> {
    if (message.type !== "session_init" || starting) {
      throw new TenureError("INVALID_MESSAGE", {
        reason: `unexpected ${message.type}: session_init is not answered yet`,
      });
    }
    starting = true;
    try {
      const presented = await options.identify(message.token ?? options.headerToken);
      const { tenant, name: token } = admit(message, presented);
      const { session_id, resume_token = "" } = message;
      const resume = session_id ? { sessionId: session_id, resumeToken: resume_token } : undefined;
      const features = grantedOf(SESSION_FEATURES, message.features);
      const updates = features.includes("updates_on_request") ? new UpdateRequests() : undefined;
      const jobLink = { ...link, updates };
      const joined = await sessions.join({ tenant, token, resume }, jobLink);
      if (socket.readyState !== socket.OPEN) return await joined.left();
      session = joined;
      clearTimeout(impatience);
      link.send({
        type: "session_init_ack",
        session_id: joined.sessionId,
        resume_token: joined.resumeToken,
        instance_id: instanceId,
        protocol_version: PROTOCOL_VERSION,
        session_ping: true,
        ...(features.length > 0 && { features }),
      });
      jobs.joined(joined, { turnPauseMs: message.turn_pause_ms }).catch(() => {}); // With the store down: the recovery loop sends the results again.
    } catch (error) {
      options.onRefused?.(error);
      link.send(toErrorMessage(error));
      link.close(closeCodeOf(error), "registration rejected");
    }
  }

  async function left(gone: SessionConnection): Promise<void> {
    await Promise.allSettled([gone.left(), jobs.left(gone)]);
  }

  /** Jobs are not awaited here: the next message is handled while the store still works on the last. */
  function receive(current: SessionConnection, message: SessionMessage): Promise<void> | undefined {
    switch (message.type) {
      case "session_init":
        throw new TenureError("INVALID_MESSAGE", { reason: "duplicate session_init" });
      case "session_close":
        return end(current);
      case "acks":
        for (const ack of message.acks) jobs.resultAcked(current, ack.job_id);
        return undefined;
      case "job_submit":
        for (const ack of message.acks ?? []) jobs.resultAcked(current, ack.job_id);
        jobs.submit(current, message);
        return undefined;
      case "job_watch":
        jobs.watch(current, message);
        return undefined;
      case "job_result_ack":
        jobs.resultAcked(current, message.job_id);
        return undefined;
      case "job_cancel":
        void jobs.cancel(current, message.job_id);
        return undefined;
      case "turn_finalize":
        return finalizeTurn(current, message);
      case "session_ping":
        return undefined; // Answered by `receiveAtOnce`.
    }
  }

  async function finalizeTurn(
    current: SessionConnection,
    { reason, request_id }: Extract<SessionMessage, { type: "turn_finalize" }>,
  ): Promise<void> {
    try {
      await jobs.finalizeTurn(current, reason);
    } catch (error) {
      link.send(toErrorMessage(error, { ...(request_id !== undefined && { request_id }) }));
    }
  }

  async function end(current: SessionConnection): Promise<void> {
    session = undefined;
    await jobs.closed(current).catch(() => {});
    await current.end();
    await jobs.left(current).catch(() => {});
    socket.close(1000, "done");
  }
}

function admit(
  { protocol_version }: { protocol_version: number },
  principal: Principal | undefined,
): Principal {
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
  if (principal.tenant === ANY_TENANT) {
    const reason = 'a session belongs to one tenant; this token has tenant = "*"';
    throw new TenureError("FORBIDDEN", { reason });
  }
  return principal;
}
