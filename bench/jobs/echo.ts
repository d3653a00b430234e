import { type WebSocket as Socket, WebSocket, WebSocketServer } from "ws";
import { drive, FILLING, type LoadFigures, type SubmitJob } from "./drive.ts";

/** The limit of the wire: a frame of a job's size to a bare server and back, in a process of its own. */
export async function measureEcho(url: string, atOnce: number, ms: number): Promise<LoadFigures> {
  const sockets = await Promise.all(Array.from({ length: 4 }, () => open(url)));
  const waiting = new Map<number, (frame: string) => void>();
  for (const socket of sockets)
    socket.on("message", (data) => {
      const frame = data.toString();
      const { n } = JSON.parse(frame) as { n: number };
      waiting.get(n)?.(frame);
      waiting.delete(n);
    });
  let n = 0;
  const submit: SubmitJob = async ({ sentMs }) => {
    const id = n++;
    const back = new Promise<string>((resolve) => waiting.set(id, resolve));
    sockets[id % sockets.length]!.send(JSON.stringify({ n: id, filling: FILLING }));
    await back;
    return { beganMs: sentMs };
  };
  const figures = await drive({ kind: "closed", atOnce, ms }, submit);
  for (const socket of sockets) socket.close();
  return figures;
}

async function open(url: string): Promise<Socket> {
  const socket = new WebSocket(url, { perMessageDeflate: false });
  await new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  return socket;
}

/** Run as a program it is the bare server. */
if (process.argv[2] === "serve") {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: false });
  server.on("connection", (socket) =>
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary })),
  );
  server.on("listening", () => {
    const { port } = server.address() as { port: number };
    console.log(`listening ws://127.0.0.1:${port}`);
  });
}
