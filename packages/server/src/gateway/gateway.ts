import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import type { NodePrincipal } from "./admission.ts";
import { acceptNode, type NodeSocketOptions } from "./node-socket.ts";
import { acceptSession, type SessionSocketOptions } from "./session-socket.ts";

export interface GatewayOptions {
  server: Server;
  frameBytesMax: number;
  /** Judges `Host` and `Origin`, as for any request. */
  allowed: (host: string | undefined, origin: string | undefined) => boolean;
  bearerOf: (header: string | undefined) => string | undefined;
  identify: (token: string | undefined) => NodePrincipal | undefined;
  node: Omit<NodeSocketOptions, "identify" | "headerToken" | "stream">;
  session: Omit<SessionSocketOptions, "identify" | "headerToken" | "stream">;
  onSockets: (kind: "node" | "session", change: 1 | -1) => void;
}

export interface Gateway {
  /** Ends the sockets that are still open, and takes no new ones. */
  close(): void;
}

interface Upgraded {
  headerToken: string | undefined;
  stream: Duplex;
}

/** The sockets of nodes and sessions, on the port of the HTTP server. */
export function openGateway(options: GatewayOptions): Gateway {
  const { server, identify } = options;
  // Compression would cost 287 kB a socket and seven eighths of the throughput.
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: options.frameBytesMax,
    perMessageDeflate: false,
  });
  let open = true;

  const accept = {
    "/ws/node": (socket: WebSocket, { headerToken, stream }: Upgraded) => {
      count(socket, "node");
      acceptNode(socket, { ...options.node, identify, headerToken, stream });
    },
    "/ws/session": (socket: WebSocket, { headerToken, stream }: Upgraded) => {
      count(socket, "session");
      acceptSession(socket, { ...options.session, identify, headerToken, stream });
    },
  };

  function count(socket: WebSocket, kind: "node" | "session"): void {
    options.onSockets(kind, 1);
    socket.once("close", () => options.onSockets(kind, -1));
  }

  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    const { host, origin, authorization } = request.headers;
    const path = (request.url ?? "").split("?")[0] ?? "";
    if (!options.allowed(host, origin)) return refuse(socket, "403 Forbidden");
    if (!Object.hasOwn(accept, path)) return refuse(socket, "404 Not Found");
    if (!open) return refuse(socket, "503 Service Unavailable");
    return sockets.handleUpgrade(request, socket, head, (ready) =>
      accept[path as keyof typeof accept](ready, {
        headerToken: options.bearerOf(authorization),
        stream: socket,
      }),
    );
  });

  return {
    close() {
      open = false;
      for (const socket of sockets.clients) socket.close(1012, "this instance is stopping");
      // Whoever does not answer the farewell within a moment is not waited for.
      setTimeout(() => {
        for (const socket of sockets.clients) socket.terminate();
      }, 1_000).unref();
    },
  };
}

function refuse(socket: Duplex, status: string): void {
  socket.on("error", () => {});
  socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
}
