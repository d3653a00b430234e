import { createServer, connect as dial, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../until.ts";
import { freePort } from "./free-port.ts";
import { type FaultProxy, startProxy } from "./proxy.ts";

/** The target answers every message with "re: " and the message, and remembers it. */
describe("a proxy between a client and its server", () => {
  let server: Server;
  let proxy: FaultProxy;
  let heard: string;
  let targetConnections: Set<Socket>;
  const clients: Client[] = [];

  beforeEach(async () => {
    heard = "";
    targetConnections = new Set();
    server = createServer((socket) => {
      targetConnections.add(socket);
      socket.on("close", () => targetConnections.delete(socket));
      socket.on("error", () => {});
      socket.on("data", (bytes) => {
        heard += bytes;
        socket.write(`re: ${bytes}`);
      });
    });
    const targetPort = await freePort();
    await new Promise<void>((resolve) => server.listen(targetPort, "127.0.0.1", resolve));
    proxy = await startProxy({ targetPort });
  });

  afterEach(() => {
    for (const client of clients.splice(0)) client.socket.destroy();
    proxy.stop();
    server.close();
  });

  test("the proxy carries bytes and the end of the stream both ways", async () => {
    const client = await connect();
    client.socket.end("hello");
    await client.hears("re: hello");
    await until(() => client.closed && proxy.connections === 0, { what: "both to close" });
    expect(client.error).toBeUndefined();
  });

  test("the proxy carries a megabyte unchanged", async () => {
    const client = await connect();
    const payload = "x".repeat(1 << 20);
    client.socket.write(payload);
    await until(() => heard.length === payload.length, { what: "all of it" });
    expect(heard).toBe(payload);
  });

  test.for(["up", "down"] as const)("delays %s, then not any more", async (direction) => {
    const client = await connect();
    proxy.delay(1_000, direction);
    const slow = await client.roundTripMs("one");
    await proxy.heal();
    expect(slow).toBeGreaterThanOrEqual(995);
    // One may be slow because the machine is; with the delay all of them would be.
    let trips = 0;
    const isQuick = async () => (await client.roundTripMs(`again ${++trips}`)) < 900;
    await until(isQuick, { what: "a quick round trip" });
  });

  test("a delay is latency, not a lower rate", async () => {
    const client = await connect();
    proxy.delay(1_000, "up");
    const started = performance.now();
    for (const word of ["a", "b", "c", "d", "e"]) client.socket.write(word);
    await until(() => heard === "abcde", { everyMs: 5, what: "all five" });
    expect(performance.now() - started).toBeLessThan(4_500);
  });

  test("heals bytes that were still waiting", async () => {
    const client = await connect();
    proxy.delay(600_000);
    client.socket.write("late");
    await until(() => client.socket.bytesWritten === 4, { what: "the bytes to be on their way" });
    await proxy.heal();
    await client.hears("re: late");
  });

  test("a black hole up: the server hears nothing, the connection stays", async () => {
    const client = await connect();
    await client.roundTripMs("before");
    proxy.blackHole("up");
    client.socket.write("lost");
    for (const socket of targetConnections) socket.write("news");
    await client.hears("news"); // the other direction is whole
    expect(heard).toBe("before");
    expect(client.closed).toBe(false);
  });

  test("a black hole down: the request runs, the reply never comes", async () => {
    const client = await connect();
    proxy.blackHole("down");
    client.socket.write("do it");
    await until(() => heard === "do it", { what: "the request" });
    expect(client.heard).toBe("");
    expect(client.closed).toBe(false);
  });

  test.for([
    ["the end of a stream", (socket: Socket) => socket.destroy()],
    ["a reset", (socket: Socket) => socket.resetAndDestroy()],
  ] as const)("swallows also %s: the server does not notice that a client went", async ([, go]) => {
    const client = await connect();
    await client.roundTripMs("before");
    proxy.blackHole("both");
    go(client.socket);
    const other = await connect();
    other.socket.write("anybody?");
    await until(() => proxy.damaged === 2, { what: "both losses" });
    await until(() => targetConnections.size === 2, { what: "the server to have both" });
    expect(heard).toBe("before");
  });

  test("after a black hole new connections work, and those with lost bytes are reset", async () => {
    const [loser, idle] = [await connect(), await connect()];
    await idle.roundTripMs("idle");
    proxy.blackHole("both");
    loser.socket.write("lost");
    await until(() => proxy.damaged === 1, { what: "the loss" });
    await proxy.heal();
    await until(() => loser.closed, { what: "the reset" });
    expect(loser.error).toBe("ECONNRESET");
    await idle.roundTripMs("still here");
    await (await connect()).roundTripMs("fresh");
    expect(heard).not.toContain("lost");
  });

  test("forgets its connections: they stay open and silent, new ones work", async () => {
    const forgotten = await connect();
    await forgotten.roundTripMs("before");
    proxy.forget();
    forgotten.socket.write("lost");
    await (await connect()).roundTripMs("fresh");
    expect(heard).toBe("beforefresh");
    expect(forgotten.closed).toBe(false);
  });

  test("slows a direction down to so many bytes a second", async () => {
    const client = await connect();
    proxy.slow(1_000, "up");
    const started = performance.now();
    client.socket.write("x".repeat(300));
    await until(() => heard.length === 300, { everyMs: 5, what: "all 300 bytes" });
    const tookMs = performance.now() - started;
    expect(tookMs).toBeGreaterThan(220);
    expect(tookMs).toBeLessThan(15_000);
  });

  test("resets all connections", async () => {
    const client = await connect();
    await client.roundTripMs("before");
    proxy.reset();
    await until(() => client.closed && targetConnections.size === 0, { what: "the reset" });
    expect(client.error).toBe("ECONNRESET");
    await (await connect()).roundTripMs("after");
  });

  test("the proxy refuses new connections until healed, while open ones go on", async () => {
    const open = await connect();
    await open.roundTripMs("before");
    proxy.refuse();
    await expect(connect()).rejects.toThrow("ECONNREFUSED");
    await open.roundTripMs("still");
    await proxy.heal();
    await (await connect()).roundTripMs("again");
  });

  test("the proxy passes on that the server is down", async () => {
    server.close();
    const client = await connect();
    await until(() => client.closed, { what: "the reset" });
    expect(client.error).toBe("ECONNRESET");
  });

  test("drops the reply it is told to, and nothing that follows slips into its place", async () => {
    const client = await connect();
    const dropped = proxy.dropNextReply((reply) => reply.includes("second"));
    await client.roundTripMs("first");
    client.socket.write("second");
    await dropped;
    client.socket.write("third");
    await until(() => heard === "firstsecondthird", { what: "the requests" });
    expect(client.heard).toBe("re: first");
    expect(client.closed).toBe(false);
    await (await connect()).roundTripMs("other");
  });

  test("cuts after a request: it ran, and its reply is lost with the connection", async () => {
    const client = await connect();
    const cut = proxy.cutAfter((request) => request.includes("debit"));
    await client.roundTripMs("hello");
    client.socket.write("debit 5");
    await cut;
    await until(() => client.closed, { what: "the reset" });
    expect(client.error).toBe("ECONNRESET");
    expect(heard).toBe("hellodebit 5");
    expect(client.heard).toBe("re: hello");
    await (await connect()).roundTripMs("debit again");
  });

  interface Client {
    socket: Socket;
    heard: string;
    closed: boolean;
    error: string | undefined;
    hears(text: string): Promise<void>;
    roundTripMs(message: string): Promise<number>;
  }

  async function connect(): Promise<Client> {
    const socket = dial({ port: proxy.port, host: "127.0.0.1", noDelay: true });
    const client: Client = {
      socket,
      heard: "",
      closed: false,
      error: undefined,
      async hears(text) {
        await until(() => client.heard.includes(text), { everyMs: 2, what: `"${text}"` });
      },
      async roundTripMs(message) {
        const started = performance.now();
        socket.write(message);
        await client.hears(message);
        return performance.now() - started;
      },
    };
    clients.push(client);
    socket.on("data", (bytes) => {
      client.heard += bytes;
    });
    socket.on("close", () => {
      client.closed = true;
    });
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    socket.on("error", (error: NodeJS.ErrnoException) => {
      client.error = error.code;
    });
    return client;
  }
});
