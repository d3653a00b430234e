import { type Server, Socket } from "node:net";
import { WebSocket } from "ws";

/** What passed the sockets of this process while it was counted. */
export interface SocketCounts {
  /** WebSocket messages by their `type`, without pings and pongs. */
  framesIn: Record<string, number>;
  framesOut: Record<string, number>;
  /** Write calls: to `clients` of this process, or to the port of a server that it connected to. */
  writes: Record<string, number>;
}

/** Connections that this process accepted. */
export const CLIENTS = "clients";

/**
 * Counts frames and writes of every socket of this process until the returned function is called. It wraps methods of
 * `net` and `ws`, so the process itself needs no code for it. Connections of `ignored` do not count.
 */
export function countSockets(ignored?: Server): () => SocketCounts {
  const counts: SocketCounts = { framesIn: {}, framesOut: {}, writes: {} };
  const uncountFrames = countFrames(counts);
  const uncountWrites = countWrites(counts, ignored);
  return () => {
    uncountFrames();
    uncountWrites();
    return counts;
  };
}

interface WebSocketInside {
  send(data: unknown, ...rest: unknown[]): void;
  emit(event: string, ...rest: unknown[]): boolean;
}

function countFrames({ framesIn, framesOut }: SocketCounts): () => void {
  const methods = WebSocket.prototype as unknown as WebSocketInside;
  const own = Object.hasOwn(methods, "emit");
  const { send, emit } = methods;
  methods.send = function (data, ...rest) {
    increment(framesOut, typeOf(data));
    send.call(this, data, ...rest);
  };
  methods.emit = function (event, ...rest) {
    if (event === "message") increment(framesIn, typeOf(rest[0]));
    return emit.call(this, event, ...rest);
  };
  return () => {
    methods.send = send;
    if (own) methods.emit = emit;
    else Reflect.deleteProperty(methods, "emit");
  };
}

/** Node has no public hook here. This method makes one system call, with all chunks that were waiting. */
interface SocketInside {
  _writeGeneric(...args: unknown[]): void;
}

function countWrites({ writes }: SocketCounts, ignored: Server | undefined): () => void {
  const methods = Socket.prototype as unknown as SocketInside;
  const { _writeGeneric: writeGeneric } = methods;
  methods._writeGeneric = function (this: Socket & { server?: Server }, ...args: unknown[]) {
    if (ignored === undefined || this.server !== ignored)
      increment(writes, this.server ? CLIENTS : `${this.remotePort}`);
    writeGeneric.apply(this as unknown as SocketInside, args);
  };
  return () => {
    methods._writeGeneric = writeGeneric;
  };
}

/** The type stands near the beginning; a payload is not parsed for it. */
const HEAD = 200;

function typeOf(data: unknown): string {
  const head = Buffer.isBuffer(data)
    ? data.subarray(0, HEAD).toString("latin1")
    : String(data).slice(0, HEAD);
  return /"type":"(\w+)"/.exec(head)?.[1] ?? "other";
}

function increment(counts: Record<string, number>, name: string): void {
  counts[name] = (counts[name] ?? 0) + 1;
}
