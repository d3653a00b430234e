/**
 * The little that a connection needs of a WebSocket. `#websocket` is the one of the runtime: the `ws` package in
 * Node, the global one in a browser. package.json chooses, so that a bundle for a browser never sees `ws`.
 */
export type OpenSocket = (url: string, options: SocketOptions) => Socket;

export interface SocketOptions {
  /** A longer frame ends the socket with 1009. Browsers cannot refuse one before it has arrived. */
  frameBytesMax: number;
  on: SocketEvents;
}

export interface SocketEvents {
  open(): void;
  text(frame: string): void;
  binary(): void;
  /** A ping or a pong of the peer. Never in a browser, which answers pings without telling. */
  heartbeat(): void;
  /** Exactly once, also when the socket never opened. */
  closed(close: SocketClose): void;
}

export interface SocketClose {
  /** 1006 when no close frame came. */
  code: number;
  reason: string;
  /** The HTTP status, when the server answered the upgrade with one. */
  status?: number;
}

export interface Socket {
  send(text: string): void;
  /** Absent in browsers. */
  ping?(): void;
  /** Bytes that were given to `send` and have not left yet. */
  unsentBytes(): number;
  /** Lets what was sent go out first. */
  close(code: number, reason: string): void;
  /** Ends it now. Nothing is waited for. */
  terminate(): void;
}

/** How long the peer has to answer a close before the socket is dropped. */
export const CLOSE_WITHIN_MS = 2_000;
