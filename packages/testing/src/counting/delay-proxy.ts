import { createServer, connect as dial, type Server, type Socket } from "node:net";

export interface DelayProxy {
  readonly port: number;
  /** From now on every byte arrives half of it later, in both directions: a round trip takes that much longer. */
  setRoundTrip(ms: number): void;
  /** What a round trip takes through such a proxy, with the lateness of its timers. */
  measureRoundTrip(): Promise<number>;
  stop(): void;
}

const ECHOES = 7;

/** A TCP proxy that lengthens round trips by an equal time, to count those that wait for one another. */
export async function startDelayProxy(targetPort: number): Promise<DelayProxy> {
  let delayMs = 0;
  const open = new Set<Socket>();
  const server = createServer({ noDelay: true }, (client) => {
    const target = dial({ port: targetPort, host: "127.0.0.1", noDelay: true });
    carry(client, target, () => delayMs);
    carry(target, client, () => delayMs);
    for (const socket of [client, target]) {
      open.add(socket);
      socket.once("close", () => open.delete(socket));
    }
  });
  const port = await listen(server);
  return {
    port,
    setRoundTrip(ms) {
      delayMs = ms / 2;
    },
    measureRoundTrip: () => measureEcho(delayMs * 2),
    stop() {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

/** One queue for all timers of a direction: bytes that came later never pass earlier ones. */
function carry(from: Socket, to: Socket, delayMs: () => number): void {
  const waiting: (() => void)[] = [];
  const later = (action: () => void) => {
    waiting.push(action);
    if (delayMs() > 0 || waiting.length > 1) setTimeout(() => waiting.shift()?.(), delayMs());
    else waiting.shift()?.();
  };
  from.on("data", (bytes) => later(() => void to.write(bytes)));
  from.on("close", () => later(() => to.destroy()));
  from.on("error", () => {});
}

async function measureEcho(roundTripMs: number): Promise<number> {
  const echo = createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => {});
    socket.pipe(socket);
  });
  const proxy = await startDelayProxy(await listen(echo));
  proxy.setRoundTrip(roundTripMs);
  const client = dial({ port: proxy.port, host: "127.0.0.1", noDelay: true });
  const tookMs: number[] = [];
  for (let n = 0; n < ECHOES; n++) {
    const startedMs = performance.now();
    const back = new Promise((resolve) => client.once("data", resolve));
    client.write("x");
    await back;
    tookMs.push(performance.now() - startedMs);
  }
  client.destroy();
  proxy.stop();
  echo.close();
  return tookMs.toSorted((a, b) => a - b)[Math.floor(ECHOES / 2)]!;
}

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as { port: number }).port;
}
