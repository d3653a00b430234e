import { connect, createServer, type Socket } from "node:net";

/** Who sent a frame: the client behind this proxy, or the server. */
export type Sender = "client" | "server";

export interface FrameCounts {
  /** Messages by `sender role type`, such as `client session job_submit`. Pings, pongs and closes are left out. */
  readonly frames: Record<string, number>;
  /** Chunks that arrived, which are the writes of a sender as far as TCP kept them apart. */
  readonly writes: Record<Sender, number>;
}

export interface FrameCounter {
  /** Where clients connect instead of the server. */
  readonly url: string;
  /** The counts since the last call. */
  take(): FrameCounts;
  close(): Promise<void>;
}

/** What no job causes: the handshake, and what a connection sends while it is idle. */
const NOT_OF_JOBS = new Set([
  "session_init",
  "session_init_ack",
  "node_challenge",
  "node_register",
  "node_register_ack",
  "node_heartbeat",
  "node_heartbeat_ack",
]);

/** The frames that jobs cause, in all. */
export function framesOfJobs({ frames }: FrameCounts): number {
  let sum = 0;
  for (const [name, count] of Object.entries(frames))
    if (!NOT_OF_JOBS.has(name.split(" ")[2] ?? "")) sum += count;
  return sum;
}

/** A TCP proxy to a server that reads the WebSocket frames which pass, and changes nothing. */
export async function countFrames(serverUrl: string): Promise<FrameCounter> {
  const { hostname, port } = new URL(serverUrl);
  let counts = none();
  const sockets = new Set<Socket>();

  const proxy = createServer({ noDelay: true }, (client) => {
    const server = connect({ host: hostname, port: Number(port), noDelay: true });
    let role = "http";
    const reader = (sender: Sender) =>
      createFrameReader({
        head(head) {
          role = /^GET \/ws\/(\w+)/.exec(head)?.[1] ?? role;
        },
        frame(type) {
          const name = `${sender} ${role} ${type}`;
          counts.frames[name] = (counts.frames[name] ?? 0) + 1;
        },
      });
    pass({ from: client, to: server, sender: "client", read: reader("client") });
    pass({ from: server, to: client, sender: "server", read: reader("server") });
  });

  function pass(line: {
    from: Socket;
    to: Socket;
    sender: Sender;
    read: (chunk: Buffer) => void;
  }): void {
    const { from, to, sender, read } = line;
    sockets.add(from);
    from.on("data", (chunk) => {
      to.write(chunk);
      counts.writes[sender] += 1;
      read(chunk);
    });
    from.on("end", () => to.end());
    from.on("error", () => to.destroy());
    from.on("close", () => {
      sockets.delete(from);
      to.destroy();
    });
  }

  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const address = proxy.address() as { port: number };
  return {
    url: `http://127.0.0.1:${address.port}`,
    take() {
      const taken = counts;
      counts = none();
      return taken;
    },
    async close() {
      const closed = new Promise((resolve) => proxy.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

const none = (): FrameCounts => ({ frames: {}, writes: { client: 0, server: 0 } });

const TEXT = 1;

/** Reads one direction: the head of the upgrade, then frames. Messages of the protocol are never fragmented. */
function createFrameReader(on: {
  head(head: string): void;
  frame(type: string): void;
}): (chunk: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0);
  let isUpgraded = false;
  return (chunk) => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    if (!isUpgraded) {
      const end = rest.indexOf("\r\n\r\n");
      if (end < 0) return;
      on.head(rest.toString("latin1", 0, end));
      rest = rest.subarray(end + 4);
      isUpgraded = true;
    }
    for (let frame = frameOf(rest); frame; frame = frameOf(rest)) {
      if (frame.opcode === TEXT) on.frame(typeOf(frame.payload));
      rest = rest.subarray(frame.length);
    }
  };
}

function frameOf(bytes: Buffer): { opcode: number; payload: string; length: number } | undefined {
  if (bytes.length < 2) return undefined;
  const short = bytes[1]! & 0x7f;
  const extra = short === 126 ? 2 : short === 127 ? 8 : 0;
  const isMasked = bytes[1]! >= 0x80;
  const head = 2 + extra + (isMasked ? 4 : 0);
  if (bytes.length < head) return undefined;
  const size =
    extra === 0 ? short : extra === 2 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
  if (bytes.length < head + size) return undefined;
  const payload = Buffer.from(bytes.subarray(head, head + size));
  if (isMasked) {
    const mask = bytes.subarray(head - 4, head);
    for (let at = 0; at < size; at++) payload[at]! ^= mask[at & 3]!;
  }
  return { opcode: bytes[0]! & 0x0f, payload: payload.toString(), length: head + size };
}

const typeOf = (text: string): string =>
  /^\{"type":"(\w+)"/.exec(text)?.[1] ?? String((JSON.parse(text) as { type?: unknown }).type);
