import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import { head, openRaw, type RawClient, upgradeHead } from "./raw.ts";
import type { AttackedServer } from "./scene.ts";

// Clients without a token, and one with a token that never ends its request: they get no memory and no descriptor for long.

const PER_ADDRESS_MAX = 20;
const STRANGER = "127.0.0.9";
const PROXY = "127.0.0.8";

let server: AttackedServer;
const clients: RawClient[] = [];

beforeAll(async () => {
  server = await attackServerOnPostgres(
    [
      { name: "admin", role: "admin" },
      { name: "session", role: "session" },
    ],
    {
      settings: [
        "[server]",
        "request_timeout_seconds = 2",
        "connections_max = 60",
        `connections_per_address_max = ${PER_ADDRESS_MAX}`,
        `trusted_proxies = ["${PROXY}/32"]`,
      ].join("\n"),
    },
  );
});
afterAll(async () => {
  for (const { socket } of clients) socket.destroy();
  await server?.stop();
});

async function open(options: Parameters<typeof openRaw>[1] = {}): Promise<RawClient> {
  const client = await openRaw(server.url, options);
  clients.push(client);
  return client;
}

const bearer = (name: string): string => `authorization: Bearer ${server.secretOf(name)}`;

describe("a body that is not ended", () => {
  const BODY = ["content-type: application/json", "content-length: 1048576"];

  test.each([
    ["POST /api/v1/deployments", 401],
    ["PATCH /api/v1/deployments/x", 401],
    ["POST /api/v1/jobs?wait_ms=60000", 401],
    ["POST /api/v1/nowhere", 404],
    ["POST /api/v1/login", 413],
  ])("%s without a token is answered with %d before the body is read", async (line, status) => {
    const client = await open();
    client.socket.write(head(`${line} HTTP/1.1`, ...BODY));
    client.socket.write("x".repeat(1_000));
    await client.waitFor(new RegExp(`^HTTP/1.1 ${status} `));
    client.socket.destroy();
  });

  test("a token of the wrong role is answered before the body is read", async () => {
    const client = await open();
    client.socket.write(head("POST /api/v1/deployments HTTP/1.1", bearer("session"), ...BODY));
    await client.waitFor(/^HTTP\/1.1 403 /);
    client.socket.destroy();
  });

  test("a connection with a valid token is closed when the time is up", async () => {
    const client = await open();
    client.socket.write(head("POST /api/v1/deployments HTTP/1.1", bearer("admin"), ...BODY));
    client.socket.write("{");
    await client.closed;
    expect(client.received()).toMatch(/^HTTP\/1.1 408 /);
  });

  test("headers that are not ended, and none at all, are closed when the time is up", async () => {
    const slow = await open();
    slow.socket.write("GET /health/live HTTP/1.1\r\nhost: 127");
    const silent = await open();
    await Promise.all([slow.closed, silent.closed]);
  });
});

test("an answer may take longer than a request: a long poll and the stream are not cut", async () => {
  const stream = await open();
  stream.socket.write(head("GET /api/v1/stream HTTP/1.1", bearer("admin")));
  await stream.waitFor(/retry: 2000/);
  let isCut = false;
  void stream.closed.then(() => {
    isCut = true;
  });
  const job = { request_id: "slow", pool: "nobody-serves", payload: {} };
  const answer = await server.as("session", "POST", "/api/v1/jobs?wait_ms=5000", job);
  expect(answer.status).toBe(202);
  expect(isCut).toBe(false);
  stream.socket.destroy();
});

test("a refused upgrade is destroyed, also when its owner keeps its side open", async () => {
  const client = await open({ halfOpen: true });
  client.socket.write(upgradeHead("/ws/nowhere"));
  await client.ended;
  expect(client.received()).toMatch(/^HTTP\/1.1 404 /);
  // Bytes for a socket that is gone are answered with a reset; half open, it would take them for ever.
  const writing = setInterval(() => client.socket.write("x"), 20);
  await client.closed;
  clearInterval(writing);
});

test("a socket that says nothing is closed, and counts to its address", async () => {
  const silent = await open({ from: STRANGER });
  silent.socket.write(upgradeHead("/ws/node"));
  await silent.waitFor(/^HTTP\/1.1 101 /);
  await silent.closed;

  const first = await open({ from: STRANGER });
  first.socket.write(upgradeHead("/ws/session"));
  await first.waitFor(/^HTTP\/1.1 101 /);
  await Promise.all(Array.from({ length: PER_ADDRESS_MAX }, () => open({ from: STRANGER })));
  await first.closed;
});

describe("too many connections", () => {
  test("connections of one address beyond the limit close its oldest without a token; those with one and other addresses stay", async () => {
    const known = await open({ from: STRANGER });
    known.socket.write(head("GET /api/v1/stream HTTP/1.1", bearer("admin")));
    await known.waitFor(/retry: 2000/);
    const flood = await Promise.all(
      Array.from({ length: 3 * PER_ADDRESS_MAX }, () => open({ from: STRANGER })),
    );
    let closed = 0;
    await new Promise<void>((resolve) => {
      for (const client of flood)
        void client.closed.then(() => ++closed > 2 * PER_ADDRESS_MAX && resolve());
    });
    const late = await open({ from: STRANGER });
    late.socket.write(head("GET /health/live HTTP/1.1", "connection: close"));
    await late.waitFor(/^HTTP\/1.1 200 /);
    expect(known.socket.destroyed).toBe(false);
    known.socket.destroy();
  });

  test("connections without a token leave room for a client with one", async () => {
    const addresses = ["127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14"];
    const floods = addresses.map((from) =>
      Promise.all(Array.from({ length: PER_ADDRESS_MAX }, () => open({ from }))),
    );
    await Promise.all(floods);
    expect((await server.as("admin", "GET", "/api/v1/me")).status).toBe(200);
  });

  test("through a trusted proxy count to the forwarded address, not to the proxy", async () => {
    const upgrade = async (address: string): Promise<RawClient> => {
      const client = await open({ from: PROXY });
      client.socket.write(upgradeHead("/ws/session", `x-forwarded-for: 192.0.2.1, ${address}`));
      await client.waitFor(/^HTTP\/1.1 \d{3} /);
      return client;
    };
    const sockets = await Promise.all(
      Array.from({ length: PER_ADDRESS_MAX }, () => upgrade("203.0.113.1")),
    );
    expect(sockets.every((client) => client.received().startsWith("HTTP/1.1 101"))).toBe(true);
    expect((await upgrade("203.0.113.1")).received()).toMatch(/^HTTP\/1.1 429 /);
    expect((await upgrade("203.0.113.2")).received()).toMatch(/^HTTP\/1.1 101 /);

    const request = await open({ from: PROXY });
    request.socket.write(head("GET /health/live HTTP/1.1", "x-forwarded-for: 203.0.113.1"));
    await request.waitFor(/^HTTP\/1.1 429 /);
    const other = await open({ from: PROXY });
    other.socket.write(head("GET /health/live HTTP/1.1", "x-forwarded-for: 203.0.113.2"));
    await other.waitFor(/^HTTP\/1.1 200 /);
  });
});
