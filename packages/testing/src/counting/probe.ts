import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { isMainThread } from "node:worker_threads";
import { countAllocations } from "./heap-counts.ts";
import { countSockets } from "./socket-counts.ts";

// Loaded into a process by `--import`. It does nothing until it is asked over a loopback port, whose number it prints.
if (isMainThread) serve();

function serve(): void {
  const server = createServer((socket) => {
    socket.unref();
    socket.on("error", () => {});
    let end: (() => unknown) | undefined;
    createInterface({ input: socket }).on("line", (line) => {
      if (line === "sockets") end = countSockets(server);
      if (line === "heap") end = countAllocations();
      socket.write(`${JSON.stringify(line === "end" ? (end?.() ?? {}) : {})}\n`);
    });
  });
  server.unref();
  server.listen(0, "127.0.0.1", () => {
    const { port } = server.address() as { port: number };
    console.log(`probe at ${port}`);
  });
}
