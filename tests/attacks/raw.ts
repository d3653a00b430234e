import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** A connection whose every byte the test chooses. */
export interface RawClient {
  socket: Socket;
  /** What the server has sent so far. */
  received(): string;
  /** Resolves when `received` matches. */
  waitFor(pattern: RegExp): Promise<void>;
  /** Resolves when the server has ended its side. */
  ended: Promise<void>;
  /** Resolves when the connection is gone, in good order or not. */
  closed: Promise<void>;
}

/** Opens a connection, from another loopback address if one is given. */
export async function openRaw(
  url: string,
  { from, halfOpen = false }: { from?: string; halfOpen?: boolean } = {},
): Promise<RawClient> {
  const { hostname, port } = new URL(url);
  const socket = connect({
    host: hostname,
    port: Number(port),
    allowHalfOpen: halfOpen,
    ...(from !== undefined && { localAddress: from }),
  });
  let text = "";
  let look = () => {};
  socket.setEncoding("latin1");
  socket.on("data", (data) => {
    text += data;
    look();
  });
  socket.on("error", () => {});
  const ended = new Promise<void>((resolve) => socket.once("end", resolve));
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  await once(socket, "connect");
  return {
    socket,
    received: () => text,
    waitFor: (pattern) =>
      new Promise((resolve, reject) => {
        look = () => pattern.test(text) && resolve();
        look();
        void closed.then(() =>
          reject(new Error(`closed before ${pattern}; received ${JSON.stringify(text)}`)),
        );
      }),
    ended,
    closed,
  };
}

/** The head of a request, with the `Host` that this server answers to. */
export function head(line: string, ...headers: string[]): string {
  return [line, "host: 127.0.0.1", ...headers, "", ""].join("\r\n");
}

/** The head of an upgrade to a WebSocket. */
export const upgradeHead = (path: string, ...headers: string[]): string =>
  head(
    `GET ${path} HTTP/1.1`,
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
    ...headers,
  );
