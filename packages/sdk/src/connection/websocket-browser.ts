import { type CheckReady, fetchReady } from "./mover.ts";
import type { OpenSocket } from "./socket.ts";

/** The part of the standard WebSocket that is used; the compiler knows only Node's globals. */
interface StandardWebSocket {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  readonly bufferedAmount: number;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export const openSocket: OpenSocket = (url, { frameBytesMax, on }) => {
  // Read on use: a page rendered on a server imports this module where there is no WebSocket.
  const { WebSocket } = globalThis as unknown as {
    WebSocket: new (url: string) => StandardWebSocket;
  };
  const socket = new WebSocket(url);
  socket.onopen = on.open;
  socket.onmessage = ({ data }) => {
    if (typeof data !== "string") return on.binary();
    if (data.length <= frameBytesMax) return on.text(data);
    // Scripts may not send 1009, so the peer gets a normal close.
    end({ code: 1009, reason: "the frame is too large" });
    socket.close();
  };
  socket.onclose = ({ code, reason }) => end({ code, reason });

  let ended = false;
  function end(close: { code: number; reason: string }): void {
    if (ended) return;
    ended = true;
    on.closed(close);
  }

  return {
    send: (text) => socket.send(text),
    unsentBytes: () => socket.bufferedAmount,
    close: (code, reason) => socket.close(code, reason),
    // Browsers have no abrupt close. This one waits for the peer, in the background.
    terminate: () => socket.close(),
  };
};

/** A page has no thread that could keep its socket alive. */
export const openBlockingSocket: OpenSocket = () => {
  throw new TypeError("blocking: not available in a browser");
};

/** A page may check only its own origin. For others the handshake decides, which needs the stores as well. */
export const checkReady: CheckReady = async (url) => {
  const { location } = globalThis as unknown as { location?: { origin: string } };
  return new URL(url).origin === location?.origin ? fetchReady(url) : { status: "unknown" };
};
