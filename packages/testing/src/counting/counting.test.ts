import { connect, createServer, type Server, type Socket } from "node:net";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { startRedis } from "../stores/redis.ts";
import { readCommandCounts, resetCommandCounts } from "./command-counts.ts";
import { startDelayProxy } from "./delay-proxy.ts";
import { countAllocations } from "./heap-counts.ts";
import { CLIENTS, countSockets } from "./socket-counts.ts";

test("frames are counted by type in both directions, and writes by the other end", async () => {
  const sockets = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await new Promise((resolve) => sockets.once("listening", resolve));
  const { port } = sockets.address() as { port: number };
  const accepted = new Promise<WebSocket>((resolve) => sockets.once("connection", resolve));
  const client = new WebSocket(`ws://127.0.0.1:${port}`);
  const server = await accepted;
  await new Promise((resolve) => client.once("open", resolve));

  const end = countSockets();
  client.send(JSON.stringify({ type: "job_submit", payload: { type: "inner" } }));
  client.send(JSON.stringify({ type: "job_submit" }));
  client.ping();
  await new Promise((resolve) => server.once("ping", resolve));
  const stream = (server as unknown as { _socket: Socket })._socket;
  stream.cork();
  server.send(Buffer.from(JSON.stringify({ type: "job_result" })), { binary: false });
  server.send(JSON.stringify({ type: "job_update" }));
  stream.uncork();
  await new Promise((resolve) => client.once("message", () => client.once("message", resolve)));
  const { framesIn, framesOut, writes } = end();
  // One process plays both ends here, so each message is sent once and received once.
  const both = { job_submit: 2, job_result: 1, job_update: 1 };
  expect(framesIn).toEqual(both);
  expect(framesOut).toEqual(both);
  // The pong is a write of its own; the two corked frames are one.
  expect(writes).toEqual({ [CLIENTS]: 2, [`${port}`]: 3 });

  client.send("after");
  await new Promise((resolve) => server.once("message", resolve));
  expect(framesIn).toEqual(both);
  client.close();
  await new Promise((resolve) => client.once("close", resolve));
  sockets.close();
});

test("connections of the ignored server do not count", async () => {
  const server = createServer((socket) => socket.end("hello"));
  await listening(server);
  const { port } = server.address() as { port: number };
  const end = countSockets(server);
  const socket = connect(port, "127.0.0.1").resume();
  await new Promise((resolve) => socket.once("close", resolve));
  expect(end().writes).toEqual({});
  server.close();
});

test("allocated bytes are counted across collections", () => {
  const eachBytes = 8 * 1_000;
  const rounds = 20_000;
  const end = countAllocations();
  let kept: number[] = [];
  for (let n = 0; n < rounds; n++) kept = new Array<number>(1_000).fill(n + 0.5);
  const { allocatedBytes, collections } = end();
  expect(kept).toHaveLength(1_000);
  expect(collections).toBeGreaterThan(2);
  // Each round is one array of 8 kB, and nothing near it.
  expect(allocatedBytes / rounds).toBeGreaterThan(eachBytes * 0.95);
  expect(allocatedBytes / rounds).toBeLessThan(eachBytes * 2.5);
});

test("a proxy lengthens every round trip by the same time and keeps the order; commands in scripts count", async () => {
  const redis = await startRedis();
  const proxy = await startDelayProxy(redis.port);
  const client = new Redis(proxy.port, "127.0.0.1");
  try {
    await client.ping();
    proxy.setRoundTrip(50);
    expect(await proxy.measureRoundTrip()).toBeGreaterThanOrEqual(49);
    const startedMs = performance.now();
    for (let n = 0; n < 4; n++) await client.incr("one after another");
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(4 * 49);

    const arrived = Array.from({ length: 50 }, () => client.incr("in order"));
    proxy.setRoundTrip(0);
    arrived.push(client.incr("in order"));
    expect(await Promise.all(arrived)).toEqual(Array.from({ length: 51 }, (_, n) => n + 1));

    await resetCommandCounts(redis.port);
    await client.eval(
      "redis.call('SET', KEYS[1], '1') return redis.call('GET', KEYS[1])",
      1,
      "key",
    );
    expect(await readCommandCounts(redis.port)).toEqual({ eval: 1, set: 1, get: 1 });
  } finally {
    client.disconnect();
    proxy.stop();
    await redis.discard();
  }
});

const listening = (server: Server): Promise<void> =>
  new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
