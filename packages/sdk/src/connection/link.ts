import {
  type ErrorMessage,
  fromErrorMessage,
  type GoAway,
  type ServerToNode,
  type ServerToSession,
  TenureError,
} from "@tenure/protocol";
import type * as z from "zod";
import type { Cancel, Clock } from "../clock.ts";
import { isWithin, type ReadFrame, readFrame as readFrameAlone } from "./frames.ts";
import { createInbox, type Handshake } from "./handshake.ts";
import { type Liveness, watchAnswers, watchLiveness } from "./liveness.ts";
import { type Loss, lossOfClose, lossOfHandshake } from "./retry.ts";
import type { OpenSocket, Socket, SocketClose } from "./socket.ts";
import type { TlsFiles } from "./tls.ts";

export type ServerMessage = ServerToNode | ServerToSession;

export interface LinkLimits {
  /** From the first packet to the end of the handshake. */
  readyWithinMs: number;
  /** Two intervals without a sign of life end the link. Browsers cannot ping; there a message does, if the server knows it. */
  pingEveryMs: number;
  /** Limit of one incoming frame. Far above that of the protocol: a list that has grown must not end the connection. */
  frameBytesMax: number;
  /** Limit of one outgoing frame. The server closes the connection on a longer one. */
  sendBytesMax: number;
  /** Limit of the send buffer: a peer that does not read must not fill the memory. */
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
  error(message: ErrorMessage): void;
  /** A message of a type that this version does not know. */
  unknown(type: string): void;
  /** A frame that is not a message; `value` is its JSON, if it is JSON. */
  rejected(error: TenureError, value: unknown): void;
  /** Exactly once, and the last of all. */
  lost(loss: Loss): void;
}

export interface LinkOptions<In extends ServerMessage, Out, Ack> {
  url: string;
  incoming: z.ZodType<In>;
  handshake: Handshake<In, Out, Ack>;
  /** A message that the server answers, for sockets that cannot ping; undefined when the server does not know it. */
  pingMessage?: ((ack: Ack) => Out | undefined) | undefined;
  openSocket: OpenSocket;
  readFrame?: ReadFrame | undefined;
  clock: Clock;
  limits: LinkLimits;
  tls?: TlsFiles | undefined;
  on: LinkEvents<In, Ack>;
}

/**
 * One socket from opening to loss. A link is never reused; the connection opens the next one.
 *
 *     opening    until the socket is open
 *     handshake  messages go to the handshake, or wait in the inbox until the link is ready
 *     ready      messages go to `on.message`
 *     over       `on.lost` was called, and nothing follows
 *
 * opening → handshake → ready → over; every phase may end as over.
 */
export class Link<In extends ServerMessage, Out, Ack> {
  readonly #options: LinkOptions<In, Out, Ack>;
  readonly #inbox = createInbox<In>();
  readonly #socket: Socket | undefined;
  readonly #cancelTimeout: Cancel;
  /** Resolves when the socket is closed, which may be long after the link is over. */
  readonly #socketClosed: Promise<void>;
  #onSocketClosed: () => void = () => {};
  #phase: "opening" | "handshake" | "ready" | "over" = "opening";
  /** The last `error` of the server about this connection. */
  #lastError: TenureError | undefined;
  #liveness: Liveness | undefined;

  constructor(options: LinkOptions<In, Out, Ack>) {
    const { clock, limits } = options;
    this.#options = options;
    this.#socketClosed = new Promise((resolve) => {
      this.#onSocketClosed = resolve;
    });
    this.#cancelTimeout = clock.after(limits.readyWithinMs, () =>
      this.#drop({ kind: "late", reason: `not ready after ${limits.readyWithinMs} ms` }),
    );
    this.#socket = this.#openSocket();
  }

  send(message: Out): SendOutcome {
    return this.sendFrame(JSON.stringify(message));
  }

  /** Like `send`, for a message that is serialized already. */
  sendFrame(frame: string): SendOutcome {
    const { limits } = this.#options;
    const socket = this.#socket;
    if (!socket || this.#phase === "opening" || this.#phase === "over") return "not_connected";
    if (!isWithin(frame, limits.sendBytesMax)) return "too_large";
    if (socket.unsentBytes() + frame.length > limits.unsentBytesMax) return "queue_full";
    socket.send(frame);
    return "sent";
  }

  /** Closes the socket. `on.lost` is called at once; the promise resolves when the socket is closed. */
  async leave(loss: Loss): Promise<void> {
    if (this.#phase === "opening") this.#socket?.terminate();
    else this.#socket?.close(1000, "");
    this.#end(loss);
    await this.#socketClosed;
  }

  /** Browsers throw where a page may not connect. That is reported like any other failure, and not before this returns. */
  #openSocket(): Socket | undefined {
    const { url, openSocket, limits, tls } = this.#options;
    try {
      return openSocket(url, {
        ...{ frameBytesMax: limits.frameBytesMax, tls },
        on: {
          open: () => this.#opened(),
          text: (text) => this.#received(text),
          binary: () => this.#receivedBinary(),
          heartbeat: () => this.#liveness?.alive(),
          closed: (close) => this.#closed(close),
        },
      });
    } catch (error) {
      queueMicrotask(() => this.#closed({ code: 1006, reason: String(error) }));
      return undefined;
    }
  }

  #opened(): void {
    const { clock, limits, on } = this.#options;
    const socket = this.#socket;
    if (this.#phase !== "opening") return;
    this.#phase = "handshake";
    if (socket?.ping) {
      this.#liveness = watchLiveness({
        clock,
        pingEveryMs: limits.pingEveryMs,
        ping: () => socket.ping?.(),
        onSilent: (ms) =>
          this.#drop({ kind: "silent", reason: `nothing received for ${Math.round(ms)} ms` }),
      });
    }
    on.opened();
    void this.#greet();
  }

  async #greet(): Promise<void> {
    const { handshake, on } = this.#options;
    const greeting = {
      send: (message: Out) => this.#sendOrThrow(message),
      expect: this.#inbox.expect,
    };
    const outcome = await handshake(greeting).then(
      (ack) => ({ ack }),
      (error: unknown) => ({ error }),
    );
    if (this.#phase !== "handshake") return;
    if ("error" in outcome) return void this.leave(lossOfHandshake(outcome.error));
    this.#cancelTimeout();
    this.#phase = "ready";
    this.#pingByMessage(outcome.ack);
    on.ready(outcome.ack);
    for (const message of this.#inbox.rest()) if (!this.#isOver()) on.message(message);
  }

  #sendOrThrow(message: Out): void {
    const outcome = this.send(message);
    if (outcome !== "sent") throw new TenureError("INTERNAL", { reason: `not sent: ${outcome}` });
  }

  #pingByMessage(ack: Ack): void {
    const { clock, limits, pingMessage } = this.#options;
    const message = this.#socket?.ping ? undefined : pingMessage?.(ack);
    if (message === undefined) return;
    this.#liveness = watchAnswers({
      clock,
      pingEveryMs: limits.pingEveryMs,
      ping: () => void this.send(message),
      onSilent: (ms) =>
        this.#drop({ kind: "silent", reason: `no answer for ${Math.round(ms)} ms` }),
    });
  }

  #received(text: string): void {
    const { incoming, readFrame = readFrameAlone, on } = this.#options;
    if (this.#isOver()) return;
    this.#liveness?.alive();
    const frame = readFrame(incoming, text);
    if (frame.kind === "message") this.#route(frame.message);
    else if (frame.kind === "unknown") on.unknown(frame.type);
    else this.#reject(frame.error, frame.value);
  }

  #receivedBinary(): void {
    if (this.#isOver()) return;
    this.#liveness?.alive();
    this.#reject(new TenureError("INVALID_MESSAGE", { reason: "a binary frame" }), undefined);
  }

  #route(message: In): void {
    const general: ServerMessage = message;
    if (general.type === "go_away") this.#options.on.goAway(general);
    else if (isAboutConnection(general)) this.#receivedError(general, message);
    else this.#deliver(message);
  }

  #receivedError(error: ErrorMessage, message: In): void {
    this.#lastError = fromErrorMessage(error);
    this.#options.on.error(error);
    if (this.#phase === "handshake") this.#inbox.fail(this.#lastError);
    else this.#deliver(message);
  }

  #deliver(message: In): void {
    if (this.#phase === "ready") this.#options.on.message(message);
    else if (!this.#inbox.push(message))
      void this.leave({ kind: "handshake", reason: "too many messages before it was ready" });
  }

  #reject(error: TenureError, value: unknown): void {
    if (this.#phase === "ready") this.#options.on.rejected(error, value);
    else void this.leave({ kind: "handshake", reason: error.message, error });
  }

  #closed(close: SocketClose): void {
    const error = this.#lastError;
    // The server's error explains more than the close code that follows it.
    if (this.#phase === "handshake" && error)
      this.#end({ ...lossOfHandshake(error), code: close.code });
    else this.#end(lossOfClose(close, { opened: this.#phase !== "opening", error }));
    this.#onSocketClosed();
  }

  #drop(loss: Loss): void {
    this.#socket?.terminate();
    this.#end(loss);
  }

  #end(loss: Loss): void {
    if (this.#isOver()) return;
    this.#phase = "over";
    this.#cancelTimeout();
    this.#liveness?.stop();
    this.#inbox.fail(
      new TenureError("DEPENDENCY_DOWN", { dependency: "the server", reason: loss.reason }),
    );
    this.#options.on.lost(loss);
  }

  // A method, because the compiler narrows `#phase` and does not see that a callback may change it.
  #isOver(): boolean {
    return this.#phase === "over";
  }
}

const isAboutConnection = (message: ServerMessage): message is ErrorMessage =>
  message.type === "error" && message.request_id === undefined && message.job_id === undefined;
