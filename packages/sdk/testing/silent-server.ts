import { createHash } from "node:crypto";
import { type AddressInfo, createServer, type Socket } from "node:net";

export interface SilentServer {
  url: string;
  /** Pings that arrived; waits until the last bytes sent to it have been read. */
  pings(): Promise<number>;
  close(): Promise<void>;
}

/**
 * Completes the upgrade by hand, sends its lines and then nothing more: no pong, no close, like a machine whose
 * cable was pulled. A WebSocket library would answer pings by itself.
 */
export async function startSilentServer(lines: object[]): Promise<SilentServer> {
  const sockets: Socket[] = [];
  let pings = 0;
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.once("data", (request) => {
      const key = /sec-websocket-key: (.+)\r\n/i.exec(request.toString())?.[1] ?? "";
      socket.write(upgrade(key));
      for (const line of lines) socket.write(textFrame(JSON.stringify(line)));
      socket.on("data", (bytes) => {
        pings += countPings(bytes);
      });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    async pings() {
      await Promise.all(sockets.map((socket) => ended(socket)));
      return pings;
    },
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}

const ended = (socket: Socket): Promise<unknown> =>
  socket.destroyed ? Promise.resolve() : new Promise((resolve) => socket.once("close", resolve));

function upgrade(key: string): string {
  const accept = createHash("sha1")
    .update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest("base64");
  return [
    "HTTP/1.1 101 Switching Protocols",
    "upgrade: websocket",
    "connection: upgrade",
    `sec-websocket-accept: ${accept}`,
    "\r\n",
  ].join("\r\n");
}

/** A final text frame from 126 to 65,535 bytes: what our lines are. */
function textFrame(text: string): Buffer {
  const body = Buffer.from(text);
  const head = Buffer.from([0x81, 126, body.length >> 8, body.length & 0xff]);
  return Buffer.concat([head, body]);
}

/** An empty masked ping is six bytes that start with 0x89 0x80; nothing else is sent to a silent server. */
function countPings(bytes: Buffer): number {
  let count = 0;
  for (let index = 0; index + 1 < bytes.length; index += 6)
    if (bytes[index] === 0x89 && bytes[index + 1] === 0x80) count += 1;
  return count;
}
