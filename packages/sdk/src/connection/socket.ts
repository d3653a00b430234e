import type { TlsFiles } from "./tls.ts";

/**
 * The part of a WebSocket that a connection needs. `#websocket` is that of the runtime: the `ws` package in Node, the global
 * one in a browser. package.json chooses, so that a bundle for browsers does not contain `ws`.
 */
export type OpenSocket = (url: string, options: SocketOptions) => Socket;

export interface SocketOptions {
  /** A longer frame closes the socket with 1009. Browsers cannot refuse one before it has arrived. */
  frameBytesMax: number;
  tls?: TlsFiles | undefined;
  on: SocketEvents;
}

export interface SocketEvents {
  open(): void;
  text(frame: string): void;
  binary(): void;
  /** A ping or a pong of the peer. Never called in a browser, which hides them. */
  heartbeat(): void;
  /** Called exactly once, also when the socket never opened. */
  closed(close: SocketClose): void;
}

export interface SocketClose {
  /** 1006 when no close frame came. */
  code: number;
  reason: string;
  /** The HTTP status, if the server refused the upgrade. */
  status?: number;
}

export interface Socket {
  send(text: string): void;
  /** Absent in browsers. */
  ping?(): void;
  /** Bytes in the send buffer. */
  unsentBytes(): number;
  /** Sends the buffered frames first. */
  close(code: number, reason: string): void;
  /** Closes it at once. */
  terminate(): void;
}

/** How long the peer may take to answer a close before the socket is dropped. */
export const CLOSE_WITHIN_MS = 2_000;
