import { createServer } from "node:https";
import { type AddressInfo, connect as connectTcp, type Socket } from "node:net";
import { connect, type TLSSocket } from "node:tls";
import { createTestCa } from "@tenure/testing/certificates";
import { until } from "@tenure/testing/until";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createTrustedProxies } from "./client-address.ts";
import { type Connections, createConnections } from "./connections.ts";

const pair = createTestCa().issue();
const CONNECTIONS_MAX = 2;

let server: ReturnType<typeof createServer>;
let connections: Connections;
let accepted: TLSSocket[];
let clients: Socket[];
beforeEach(async () => {
  accepted = [];
  clients = [];
  connections = createConnections(
    { connectionsMax: CONNECTIONS_MAX, perAddressMax: 10 },
    createTrustedProxies([]),
    () => {},
  );
  server = createServer(pair);
  server.on("connection", connections.opened);
  server.on("secureConnection", connections.secured);
  server.on("secureConnection", (socket) => void accepted.push(socket));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
});
afterEach(() => {
  for (const client of clients) client.destroy();
  server.close();
});

const portOf = () => (server.address() as AddressInfo).port;

async function open(): Promise<{ client: TLSSocket; socket: TLSSocket }> {
  const before = accepted.length;
  const client = connect({ host: "127.0.0.1", port: portOf(), rejectUnauthorized: false });
  client.on("error", () => {});
  clients.push(client);
  await until(() => accepted.length > before, { what: "a handshake" });
  return { client, socket: accepted[before]! };
}

test("a token that arrives over TLS keeps its connection when others make room", async () => {
  const proved = await open();
  connections.proved(proved.socket);
  const stranger = await open();
  const next = await open();
  await until(() => stranger.client.closed, { what: "the connection without a token to close" });
  expect([proved.client.closed, next.client.closed]).toEqual([false, false]);
});

test("a connection that never finishes its handshake counts, and makes room", async () => {
  const silent = Array.from({ length: CONNECTIONS_MAX }, () => {
    const socket = connectTcp({ host: "127.0.0.1", port: portOf() });
    socket.on("error", () => {});
    clients.push(socket);
    return socket;
  });
  await until(() => silent.every(({ pending }) => !pending), { what: "the connections" });
  const next = await open();
  await until(() => silent[0]!.closed, { what: "the oldest to close" });
  expect(next.client.closed).toBe(false);
});

test("a connection without a token is closed when it is idle, one with a token is not", async () => {
  const { socket } = await open();
  connections.askedWithoutToken(socket);
  expect(socket.timeout).toBe(30_000);
  connections.proved(socket);
  expect(socket.timeout).toBe(0);
  connections.askedWithoutToken(socket);
  expect(socket.timeout).toBe(0);
});
