import type { TenureError } from "@tenure/protocol";
import type * as z from "zod";
import type { Clock } from "../clock.ts";
import type { ReadFrame } from "./frames.ts";
import type { Handshake } from "./handshake.ts";
import type { LinkLimits, SendOutcome, ServerMessage } from "./link.ts";
import type { CheckReady, Trouble } from "./mover.ts";
import type { Backoff, Loss } from "./retry.ts";
import type { OpenSocket } from "./socket.ts";
import type { TlsFiles } from "./tls.ts";
import type { SocketPath } from "./urls.ts";

/** `waiting`: between two attempts. `closed` is final. */
export type ConnectionState = "idle" | "connecting" | "handshake" | "ready" | "waiting" | "closed";

/** A loss, and when the connection retries. */
export interface Down extends Loss {
  url: string;
  /** False when the connection was never ready. */
  wasReady: boolean;
  retryInMs: number;
}

export interface ConnectionEvents<In, Ack> {
  ready?(ack: Ack): void;
  /** Every message but `go_away`, which the connection handles itself. */
  message?(message: In): void;
  /** After every loss and every failed attempt. `error` is set when an operator has to act. */
  down?(down: Down): void;
  state?(state: ConnectionState): void;
  /** An error that does not end the connection, such as a frame that cannot be parsed. */
  problem?(error: TenureError): void;
  /** The JSON of a frame that is not a message, for a caller that can still answer it. */
  rejected?(value: unknown, error: TenureError): void;
}

/** Certificates, and settings for tests and unusual networks. */
export interface ConnectionTuning {
  /** For `https` and `wss` with a private CA or with client certificates. */
  tls?: TlsFiles | undefined;
  limits?: Partial<LinkLimits>;
  backoff?: Partial<Backoff>;
  clock?: Clock;
  /** At least 0, below 1. */
  random?: () => number;
  openSocket?: OpenSocket;
  /** Replaces the parser, where many connections of one process receive the same frames. What it returns is only read. */
  readFrame?: ReadFrame;
  /** Checks whether another instance is ready, before the connection moves to it. */
  checkReady?: CheckReady;
}

export interface ConnectionOptions<In extends ServerMessage, Out, Ack> extends ConnectionTuning {
  /** Instances in order of preference, as `http(s)://` or `ws(s)://`. */
  urls: readonly string[];
  path: SocketPath;
  incoming: z.ZodType<In>;
  handshake: Handshake<In, Out, Ack>;
  /** See `LinkOptions`. */
  pingMessage?(ack: Ack): Out | undefined;
  /** Reclassifies a loss, for callers that know the contents of the handshake. */
  judge?(loss: Loss, wasReady: boolean): Loss;
  on: ConnectionEvents<In, Ack>;
}

export interface Connection<Out> {
  readonly state: ConnectionState;
  /** The HTTP URL of the instance of the present connection, or of the last one that was ready. */
  readonly instanceUrl: string | undefined;
  start(): void;
  /**
   * Nothing is kept for the next connection: it has another epoch and perhaps another instance. The caller sends again
   * on `ready` what is still true.
   */
  send(message: Out): SendOutcome;
  /** Like `send`, for a message that is serialized already. */
  sendFrame(frame: string): SendOutcome;
  /**
   * The instance answers but has lost its stores: presence is not renewed, or calls fail with `DEPENDENCY_DOWN`. Until
   * `well` the connection looks for an instance that is ready, and moves to it. The old socket stays until the new one
   * is registered.
   */
  trouble(sign: Trouble): void;
  well(sign: Trouble): void;
  /** Reconnects, so that the handshake can carry new values. */
  restart(reason: string): void;
  /** Sends `goodbye` and stops for good. Resolves when the socket is closed. */
  close(goodbye?: Out): Promise<void>;
}
