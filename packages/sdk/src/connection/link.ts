import {
  type ErrorMessage,
  fromErrorMessage,
  type GoAway,
  type ServerToNode,
  type ServerToSession,
  TenureError,
} from "@tenure/protocol";
import type * as z from "zod";
import type { Clock } from "../clock.ts";
import { isWithin, readFrame } from "./frames.ts";
import { createInbox, type Handshake } from "./handshake.ts";
import { type Liveness, watchAnswers, watchLiveness } from "./liveness.ts";
import { type Loss, lossOfClose, lossOfHandshake } from "./retry.ts";
import type { OpenSocket, Socket, SocketClose } from "./socket.ts";

export type ServerMessage = ServerToNode | ServerToSession;

export interface LinkLimits {
  /** From the first packet to the end of the handshake. */
  readyWithinMs: number;
  /** Two of them without a sign of life end the link. Browsers cannot ping; there a message asks, if the server knows it. */
  pingEveryMs: number;
  /** Of one incoming frame. Far above what the protocol allows: a list that has grown must not cut us off. */
  frameBytesMax: number;
  /** Of one outgoing frame: the server closes on a longer one, so it is better not sent. */
  sendBytesMax: number;
  /** Waiting to go out. Above it nothing is taken: a peer that does not read must not fill our memory. */
  unsentBytesMax: number;
}

export const LINK_LIMITS: LinkLimits = {
  readyWithinMs: 10_000,
  pingEveryMs: 5_000,
  frameBytesMax: 16 * 1024 * 1024,
  sendBytesMax: 1024 * 1024,
  unsentBytesMax: 8 * 1024 * 1024,
};

/** `sent` means handed to the network, not arrived. Anything else means that nothing was sent. */
export type SendOutcome = "sent" | "not_connected" | "queue_full" | "too_large";

/** Why nothing was sent, as the error that a caller of a remote method sees. */
export function unsentError(outcome: Exclude<SendOutcome, "sent">): TenureError {
  switch (outcome) {
    case "not_connected":
      return new TenureError("DEPENDENCY_DOWN", {
        dependency: "the server",
        reason: "not connected",
      });
    case "queue_full":
      return new TenureError("QUEUE_FULL", {
        queue: "send buffer",
        limit: LINK_LIMITS.unsentBytesMax,
        unit: "bytes",
      });
    case "too_large":
      return new TenureError("PAYLOAD_TOO_LARGE", { limit_bytes: LINK_LIMITS.sendBytesMax });
  }
}

export interface LinkEvents<In, Ack> {
  opened(): void;
  ready(ack: Ack): void;
  message(message: In): void;
  goAway(message: GoAway): void;
  /** An `error` about the connection as a whole. */
  told(message: ErrorMessage): void;
  /** A message of a type that this version does not know. */
  unknown(type: string): void;
  /** A frame that is no message; `value` is its JSON, when it is JSON. */
  rejected(error: TenureError, value: unknown): void;
  /** Exactly once, and the last of all. */
  lost(loss: Loss): void;
}

export interface Link<Out> {
  send(message: Out): SendOutcome;
  /** A message that is JSON already: whoever may have to say it again keeps it so. */
  sendFrame(frame: string): SendOutcome;
  /** Ends it from this side, politely. `lost` is told at once; the answer resolves when the socket is gone. */
  leave(loss: Loss): Promise<void>;
}

/** One socket from opening to loss: handshake, messages, signs of life. It never comes back; a connection does. */
export function openLink<In extends ServerMessage, Out, Ack>({
  url,
  incoming,
  handshake,
  pingMessage,
  openSocket,
  clock,
  limits,
  on,
}: {
  url: string;
  incoming: z.ZodType<In>;
  handshake: Handshake<In, Out, Ack>;
  /** A message that the server answers, for sockets that cannot ping; undefined when it would not know it. */
  pingMessage?: ((ack: Ack) => Out | undefined) | undefined;
  openSocket: OpenSocket;
  clock: Clock;
  limits: LinkLimits;
  on: LinkEvents<In, Ack>;
}): Link<Out> {
  const inbox = createInbox<In>();
  let phase: "opening" | "handshake" | "ready" | "over" = "opening";
  let told: TenureError | undefined;
  let liveness: Liveness | undefined;
  let socketGone: () => void = () => {};
  const gone = new Promise<void>((resolve) => {
    socketGone = resolve;
  });
  const cancelLate = clock.after(limits.readyWithinMs, () =>
    drop({ kind: "late", reason: `not ready after ${limits.readyWithinMs} ms` }),
  );
  const socket = tryOpen();

  /** Browsers throw at once where a page may not connect. Told like any other failure, and as late as one. */
  function tryOpen(): Socket | undefined {
    try {
      return openSocket(url, {
        frameBytesMax: limits.frameBytesMax,
        on: { open: opened, text: received, binary, heartbeat: () => liveness?.heard(), closed },
      });
    } catch (error) {
      queueMicrotask(() => closed({ code: 1006, reason: String(error) }));
      return undefined;
    }
  }

  function opened(): void {
    if (phase !== "opening") return;
    phase = "handshake";
    if (socket?.ping) {
      liveness = watchLiveness({
        clock,
        pingEveryMs: limits.pingEveryMs,
        ping: () => socket.ping?.(),
        onSilent: (ms) =>
          drop({ kind: "silent", reason: `nothing heard for ${Math.round(ms)} ms` }),
      });
    }
    on.opened();
    void greet();
  }

  async function greet(): Promise<void> {
    const outcome = await handshake({ send: sendOrThrow, expect: inbox.expect }).then(
      (ack) => ({ ack }),
      (error: unknown) => ({ error }),
    );
    if (phase !== "handshake") return;
    if ("error" in outcome) return void leave(lossOfHandshake(outcome.error));
    cancelLate();
    phase = "ready";
    watchByMessages(outcome.ack);
    on.ready(outcome.ack);
    for (const message of inbox.rest()) if (!isOver()) on.message(message);
  }

  function watchByMessages(ack: Ack): void {
    const message = socket?.ping ? undefined : pingMessage?.(ack);
    if (message === undefined) return;
    liveness = watchAnswers({
      clock,
      pingEveryMs: limits.pingEveryMs,
      ping: () => void send(message),
      onSilent: (ms) => drop({ kind: "silent", reason: `no answer for ${Math.round(ms)} ms` }),
    });
  }

  function received(text: string): void {
    if (isOver()) return;
    liveness?.heard();
    const frame = readFrame(incoming, text);
    if (frame.kind === "message") route(frame.message);
    else if (frame.kind === "unknown") on.unknown(frame.type);
    else reject(frame.error, frame.value);
  }

  function binary(): void {
    if (isOver()) return;
    liveness?.heard();
    reject(new TenureError("INVALID_MESSAGE", { reason: "a binary frame" }), undefined);
  }

  function route(message: In): void {
    const general: ServerMessage = message;
    if (general.type === "go_away") on.goAway(general);
    else if (isAboutConnection(general)) hear(general, message);
    else deliver(message);
  }

  function hear(error: ErrorMessage, message: In): void {
    told = fromErrorMessage(error);
    on.told(error);
    if (phase === "handshake") inbox.fail(told);
    else deliver(message);
  }

  function deliver(message: In): void {
    if (phase === "ready") on.message(message);
    else if (!inbox.push(message))
      void leave({ kind: "handshake", reason: "too many messages before it was ready" });
  }

  function reject(error: TenureError, value: unknown): void {
    if (phase === "ready") on.rejected(error, value);
    else void leave({ kind: "handshake", reason: error.message, error });
  }

  function send(message: Out): SendOutcome {
    return sendFrame(JSON.stringify(message));
  }

  function sendFrame(frame: string): SendOutcome {
    if (!socket || phase === "opening" || phase === "over") return "not_connected";
    if (!isWithin(frame, limits.sendBytesMax)) return "too_large";
    if (socket.unsentBytes() + frame.length > limits.unsentBytesMax) return "queue_full";
    socket.send(frame);
    return "sent";
  }

  function sendOrThrow(message: Out): void {
    const outcome = send(message);
    if (outcome !== "sent") throw new TenureError("INTERNAL", { reason: `not sent: ${outcome}` });
  }

  function closed(close: SocketClose): void {
    // The error says more than the code that follows it, and may be read after it.
    if (phase === "handshake" && told) end({ ...lossOfHandshake(told), code: close.code });
    else end(lossOfClose(close, { opened: phase !== "opening", told }));
    socketGone();
  }

  async function leave(loss: Loss): Promise<void> {
    if (phase === "opening") socket?.terminate();
    else socket?.close(1000, "");
    end(loss);
    await gone;
  }

  function drop(loss: Loss): void {
    socket?.terminate();
    end(loss);
  }

  function end(loss: Loss): void {
    if (isOver()) return;
    phase = "over";
    cancelLate();
    liveness?.stop();
    inbox.fail(
      new TenureError("DEPENDENCY_DOWN", { dependency: "the server", reason: loss.reason }),
    );
    on.lost(loss);
  }

  // A function, because the compiler believes an assignment that it saw longer than it is true.
  function isOver(): boolean {
    return phase === "over";
  }

  return { send, sendFrame, leave };
}

const isAboutConnection = (message: ServerMessage): message is ErrorMessage =>
  message.type === "error" && message.request_id === undefined && message.job_id === undefined;
