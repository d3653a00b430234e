import type { Duplex } from "node:stream";
import { type ClientOptions, WebSocket } from "ws";
import { CLOSE_WITHIN_MS, type OpenSocket, type SocketClose } from "./socket.ts";
import { tlsReason } from "./tls.ts";
import { readTls } from "./tls-node.ts";

export const openSocket: OpenSocket = (url, { frameBytesMax, tls, on }) => {
  const options: ClientOptions & { closeTimeout: number } = {
    ...(tls && readTls(tls)),
    maxPayload: frameBytesMax,
    closeTimeout: CLOSE_WITHIN_MS,
    // Measured on the server with compression: 7k instead of 56k messages a second, and ten times the memory.
    perMessageDeflate: false,
  };
  const socket = new WebSocket(url, options);
  // The cause comes in an event before the close, which then has only the code 1006.
  let failure: SocketClose | undefined;

  const send = createSender(socket);
  socket.on("open", on.open);
  socket.on("message", (frame, isBinary) => (isBinary ? on.binary() : on.text(frame.toString())));
  socket.on("ping", on.heartbeat);
  socket.on("pong", on.heartbeat);
  socket.on("unexpected-response", (_request, { statusCode: status = 0 }) => {
    failure = { code: 1006, reason: `the server answered HTTP ${status}`, status };
    socket.terminate();
  });
  socket.on("error", (error) => {
    failure ??= { code: isTooLarge(error) ? 1009 : 1006, reason: reasonOf(error) };
  });
  socket.on("close", (code, reason) => on.closed(failure ?? { code, reason: reason.toString() }));

  return {
    send,
    ping: () => socket.ping(),
    unsentBytes: () => socket.bufferedAmount,
    close: (code, reason) => socket.close(code, reason),
    terminate: () => socket.terminate(),
  };
};

/**
 * Sends the frames of one tick of the event loop in one write. A worker answers each job with three frames, and a session
 * submits and acknowledges by the dozen: each write is a system call here and a wake-up on the server.
 */
function createSender(socket: WebSocket): (text: string) => void {
  let stream: Duplex | undefined;
  let isCorked = false;
  socket.once("upgrade", (response) => {
    stream = response.socket;
  });

  function uncork(): void {
    isCorked = false;
    stream?.uncork();
  }

  return (text) => {
    if (stream && !isCorked) {
      isCorked = true;
      stream.cork();
      setImmediate(uncork);
    }
    socket.send(text);
  };
}

const isTooLarge = (error: Error & { code?: string }): boolean =>
  error.code === "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH";

/** Node's error has a code and no message when a name has several addresses and all refused. */
const reasonOf = (error: Error & { code?: string }): string =>
  tlsReason(error) ?? (error.message || (error.code ?? "failed"));

export { openBlockingSocket } from "./blocking-socket.ts";
export { fetchReady as checkReady } from "./mover.ts";
