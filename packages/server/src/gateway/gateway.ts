import type { IncomingMessage, Server } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { CLOSE_CODES, isTenureError, TenureError } from "@tenure/protocol";
import { type WebSocket, WebSocketServer } from "ws";
import type { Principal } from "../access/principal.ts";
import type { TokenWatches } from "../access/token-watches.ts";
import { acceptNode, type NodeSocketOptions } from "./node-socket.ts";
import { acceptSession, type SessionSocketOptions } from "./session-socket.ts";
import { TokenNodes } from "./token-nodes.ts";

export interface GatewayOptions {
  server: Server;
  frameBytesMax: number;
  /** Checks `Host` and `Origin`, as for any request. */
  allowed: (request: IncomingMessage) => boolean;
  bearerOf: (header: string | undefined) => string | undefined;
  /** Rejects with `DEPENDENCY_DOWN` when it cannot be known now. */
  identify: (token: string | undefined) => Promise<Principal | undefined>;
  /** Whether the client has presented the certificate that a node needs here. */
  certified: (request: IncomingMessage) => boolean;
  /** Calls back when the token of an open socket ends. */
  watch: TokenWatches["watch"];
  node: Omit<NodeSocketOptions, keyof Upgraded | "tokenNodes">;
  session: Omit<SessionSocketOptions, keyof Upgraded>;
  /** A socket was refused with 403, or closed because of its token. */
  onRefused: (
    request: IncomingMessage,
    refusal: {
      reason: "host" | "token" | "role" | "certificate";
      path: string;
      token?: string | undefined;
    },
  ) => void;
  onSockets: (kind: "node" | "session", change: 1 | -1) => void;
  /** Counts the socket to the address it came from until `ended` is called; undefined when that has too many. */
  counted: (request: IncomingMessage) => { ended(): void } | undefined;
  /** A valid token came over this connection. */
  onProved: (socket: Socket) => void;
}

export interface Gateway {
  /** Closes the open sockets and accepts no new ones. */
  close(): void;
}

interface Upgraded {
  headerToken: string | undefined;
  stream: Duplex;
  identify: GatewayOptions["identify"];
  onRefused: (error: unknown) => void;
}

const NO_CERTIFICATE = "a node needs a client certificate that server.tls.client_ca_file accepts";
/** How long a socket may take to send its first message. A healthy client sends it at once. */
const FIRST_MESSAGE_LIMIT_MS = 5_000;
/** How long a socket may take to read the close frame. */
const CLOSE_LIMIT_MS = 2_000;
/** The same for one whose token ended. */
const EXPEL_LIMIT_MS = 500;

/** The sockets of nodes and sessions, on the port of the HTTP server. */
export function openGateway(options: GatewayOptions): Gateway {
  const { server } = options;
  // Compression would cost 287 kB a socket and seven eighths of the throughput.
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: options.frameBytesMax,
    perMessageDeflate: false,
  });
  const tokenNodes = new TokenNodes();
  let open = true;

  const accept = {
    "/ws/node": (socket: WebSocket, upgraded: Upgraded) => {
      count(socket, "node");
      acceptNode(socket, { ...options.node, ...upgraded, tokenNodes });
    },
    "/ws/session": (socket: WebSocket, upgraded: Upgraded) => {
      count(socket, "session");
      acceptSession(socket, { ...options.session, ...upgraded });
    },
  };

  function count(socket: WebSocket, kind: "node" | "session"): void {
    options.onSockets(kind, 1);
    socket.once("close", () => options.onSockets(kind, -1));
  }

  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    const { authorization } = request.headers;
    const path = (request.url ?? "").split("?")[0] ?? "";
    if (!options.allowed(request)) {
      options.onRefused(request, { reason: "host", path: "none" });
      return refuse(socket, "403 Forbidden");
    }
    if (!Object.hasOwn(accept, path)) return refuse(socket, "404 Not Found");
    if (!open) return refuse(socket, "503 Service Unavailable");
    const counted = options.counted(request);
    if (!counted) return refuse(socket, "429 Too Many Requests");
    socket.once("close", counted.ended);
    const watched = watchToken(request, path);
    socket.once("close", () => watched.end());
    const headerToken = options.bearerOf(authorization);
    // Not awaited: the registration awaits its own.
    if (headerToken !== undefined && watched.isCertified)
      watched.prove(headerToken).catch(() => {});
    return sockets.handleUpgrade(request, socket, head, (ready) => {
      expectMessage(ready);
      watched.onTokenEnd(() => expel(ready));
      const { identify, onRefused } = watched;
      const upgraded = { headerToken, stream: socket, identify, onRefused };
      accept[path as keyof typeof accept](ready, upgraded);
    });
  });

  /** Remembers the token of a socket, for the audit line of a rejection, and follows it while the socket is open. */
  function watchToken(request: IncomingMessage, path: string) {
    let token: string | undefined;
    let endWatch = () => {};
    let isOver = false;
    let onEnd = () => {};
    const isCertified = path !== "/ws/node" || options.certified(request);
    async function prove(secret: string | undefined): Promise<Principal | undefined> {
      // Here and not at the upgrade: a node logs an error of its registration, and of a refused upgrade only the status.
      if (!isCertified) throw new TenureError("UNAUTHENTICATED", { reason: NO_CERTIFICATE });
      const principal = await options.identify(secret);
      token = principal?.name;
      if (principal) options.onProved(request.socket);
      return principal;
    }
    async function identify(secret: string | undefined): Promise<Principal | undefined> {
      const principal = await prove(secret);
      if (principal && !isOver) endWatch = options.watch(principal, () => onEnd());
      return principal;
    }
    function end(): void {
      isOver = true;
      endWatch();
    }
    const onRefused = (error: unknown): void => {
      if (isTenureError(error, "UNAUTHENTICATED") || isTenureError(error, "FORBIDDEN"))
        options.onRefused(request, {
          reason: isCertified ? (token ? "role" : "token") : "certificate",
          ...{ path, token },
        });
    };
    const onTokenEnd = (callback: () => void) => {
      onEnd = callback;
    };
    return { prove, identify, onRefused, onTokenEnd, end, isCertified };
  }

  return {
    close() {
      open = false;
      for (const socket of sockets.clients) socket.close(1012, "this instance is stopping");
      // Sockets that do not answer the close frame within a second are terminated.
      setTimeout(() => {
        for (const socket of sockets.clients) socket.terminate();
      }, 1_000).unref();
    },
  };
}

/** Closes a socket that sends nothing: it only costs memory. */
function expectMessage(socket: WebSocket): void {
  const limit = setTimeout(() => {
    // Bytes that arrived while the event loop was busy are read first.
    setImmediate(() => {
      if (isSilent) end(socket);
    });
  }, FIRST_MESSAGE_LIMIT_MS);
  let isSilent = true;
  socket.once("message", () => {
    isSilent = false;
    clearTimeout(limit);
  });
  socket.once("close", () => clearTimeout(limit));
}

/** Closes the socket of a token that ended. Nothing more of what it sends is handled, whether or not it answers the close. */
function expel(socket: WebSocket): void {
  socket.removeAllListeners("message");
  socket.close(CLOSE_CODES.UNAUTHENTICATED, "the token is no longer valid");
  setTimeout(() => socket.terminate(), EXPEL_LIMIT_MS).unref();
}

function end(socket: WebSocket): void {
  socket.close(CLOSE_CODES.UNAUTHENTICATED, "no message within 5 s");
  setTimeout(() => socket.terminate(), CLOSE_LIMIT_MS).unref();
}

/** Answers and destroys the socket once the answer has left: half closed, the client could keep it open. */
function refuse(socket: Duplex, status: string): void {
  socket.on("error", () => {});
  const limit = setTimeout(() => socket.destroy(), CLOSE_LIMIT_MS);
  socket.once("close", () => clearTimeout(limit));
  const answer = `HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`;
  socket.end(answer, () => socket.destroy());
}
