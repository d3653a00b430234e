import { type WebSocket, WebSocketServer } from "ws";
import { type Arrivals, createArrivals } from "./arrivals.ts";

/** A real WebSocket server that sends the messages a test gives it. */
export interface Peer {
  url: string;
  /** The next client that connects. */
  accept(): Promise<PeerSocket>;
  /** Clients that connected and were not accepted by the test. */
  unaccepted(): number;
  close(): Promise<void>;
}

export interface PeerSocket {
  /** The path the client asked for. */
  path: string;
  raw: WebSocket;
  /** Objects travel as JSON, text as it is. */
  send(...messages: (object | string)[]): void;
  /** The next message of the client. */
  receive(): Promise<Record<string, unknown>>;
  /** Messages that the test has not read. */
  unread(): Record<string, unknown>[];
  closed: Promise<{ code: number; reason: string }>;
}

export async function startPeer(): Promise<Peer> {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  const clients = createArrivals<PeerSocket>("client");
  server.on("connection", (raw, request) => clients.push(wrap(raw, request.url ?? "")));
  await new Promise<void>((resolve) => server.once("listening", resolve));
  const { port } = server.address() as { port: number };
  return {
    url: `http://127.0.0.1:${port}`,
    accept: clients.next,
    unaccepted: () => clients.rest().length,
    close: () =>
      new Promise((resolve) => {
        for (const client of server.clients) client.terminate();
        server.close(() => resolve());
      }),
  };
}

function wrap(raw: WebSocket, path: string): PeerSocket {
  const messages: Arrivals<Record<string, unknown>> = createArrivals("message from the client");
  raw.on("message", (frame) => messages.push(JSON.parse(frame.toString())));
  raw.on("error", () => {});
  return {
    path,
    raw,
    send(...sent) {
      for (const message of sent)
        raw.send(typeof message === "string" ? message : JSON.stringify(message));
    },
    receive: messages.next,
    unread: messages.rest,
    closed: new Promise((resolve) =>
      raw.once("close", (code, reason) => resolve({ code, reason: reason.toString() })),
    ),
  };
}
