import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { isTenureError, ROUTES, TenureError } from "@tenure/protocol";
import { describe, expect, onTestFinished, test } from "vitest";
import { type AdminOptions, allPages, createAdmin } from "./admin.ts";

const READY = { status: "ready", instance_id: "i-1", dependencies: [] } as const;

describe("a request", () => {
  test("goes to the route's own path, with the token, and the names cannot leave their place", async () => {
    const { admin, requests } = await serve({ token: "s3cret" }, reply(200, drained));
    await admin.call(ROUTES.drainNode, { params: { id: "../a b?c#d" } }).catch(() => {});
    expect(requests[0]).toMatchObject({
      method: "POST",
      url: "/api/v1/nodes/..%2Fa%20b%3Fc%23d/drain",
      headers: { authorization: "Bearer s3cret", "content-type": "application/json" },
    });
  });

  test("has the query without undefined fields", async () => {
    const { admin, requests } = await serve({}, reply(200, { items: [], next_cursor: null }));
    const query = { limit: 5, subject: "a&b=c", event: undefined };
    await admin.call(ROUTES.listEvents, { query });
    expect(requests[0]?.url).toBe("/api/v1/events?limit=5&subject=a%26b%3Dc");
    expect(requests[0]?.headers).not.toHaveProperty("authorization");
  });

  const drained = { node: {} };
});

describe("an answer", () => {
  test("is the reply, as the route describes it", async () => {
    const { admin } = await serve({}, reply(200, { ...READY, news: "of a later version" }));
    expect(await admin.call(ROUTES.healthReady, {})).toEqual(READY);
  });

  test("with an accepted status is not an error", async () => {
    const sick = { ...READY, status: "not_ready" };
    const { admin } = await serve({}, reply(503, sick));
    expect(await admin.call(ROUTES.healthReady, { accept: [503] })).toEqual(sick);
  });

  test("with an error is thrown with its code, message, details and status", async () => {
    const error = {
      code: "LEASE_HELD",
      message: "held",
      retryable: true,
      details: { owner_node: "i-2" },
    };
    const { admin } = await serve({}, reply(409, { error }));
    const thrown = await failureOf(admin.call(ROUTES.readCluster, {}));
    expect(isTenureError(thrown, "LEASE_HELD")).toBe(true);
    expect(thrown).toMatchObject({ ...error, status: 409 });
  });

  test("with a code of a newer server keeps its code, message and retryable", async () => {
    const error = { code: "MOON_PHASE", message: "not tonight", retryable: true, details: {} };
    const { admin } = await serve({}, reply(425, { error }));
    expect(await failureOf(admin.call(ROUTES.readCluster, {}))).toMatchObject({
      code: "INTERNAL",
      wireCode: "MOON_PHASE",
      message: "not tonight",
      retryable: true,
      status: 425,
    });
  });

  test.each([
    ["a proxy's page", 502, "<h1>Bad Gateway</h1>", "text/html"],
    ["half a body of ours", 500, '{"error":{"code":', "application/json"],
    ["nothing", 500, "", "application/json"],
  ])("that is %s instead of an error is INTERNAL with its status", async (_, status, body, type) => {
    const { admin } = await serve({}, raw(status, body, type));
    expect(await failureOf(admin.call(ROUTES.readCluster, {}))).toMatchObject({
      code: "INTERNAL",
      status: 500,
      message: expect.stringContaining(`answered ${status}`),
    });
  });

  test.each([
    ["another program's page", 200, "<h1>It works!</h1>", "text/html"],
    ["JSON of another program", 200, '{"hello":"world"}', "application/json"],
    ["a proxy's page under a status that was asked for", 503, "<h1>Sorry</h1>", "text/html"],
  ])("that is %s instead of a reply is INTERNAL with its status", async (_, status, body, type) => {
    const { admin } = await serve({}, raw(status, body, type));
    expect(await failureOf(admin.call(ROUTES.healthReady, { accept: [503] }))).toMatchObject({
      code: "INTERNAL",
      message: `unexpected answer (${status}) to GET /health/ready; is this a Tenure server?`,
    });
  });
});

describe("a server that does not answer", () => {
  test("because none listens is DEPENDENCY_DOWN with the address and the reason", async () => {
    const { admin, url, close } = await serve({}, reply(200, READY));
    await close();
    expect(await failureOf(admin.call(ROUTES.healthReady, {}))).toMatchObject({
      code: "DEPENDENCY_DOWN",
      retryable: true,
      message: `the server at ${url} is down (ECONNREFUSED)`,
    });
  });

  test("in time is DEPENDENCY_DOWN", async () => {
    const { admin } = await serve({ timeoutMs: 50 }, () => {});
    await expectTimeout(admin.call(ROUTES.healthReady, {}));
  });

  test("in time with the rest of its body is DEPENDENCY_DOWN too", async () => {
    const { admin } = await serve({ timeoutMs: 50 }, (_, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.write('{"status":');
    });
    await expectTimeout(admin.call(ROUTES.healthReady, {}));
  });

  test("to the end is DEPENDENCY_DOWN, and is not called again", async () => {
    const { admin, requests } = await serve({}, (request, response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
      response.write("{", () => request.socket.resetAndDestroy());
    });
    expect(await failureOf(admin.call(ROUTES.healthReady, {}))).toMatchObject({
      code: "DEPENDENCY_DOWN",
    });
    expect(requests).toHaveLength(1);
  });

  async function expectTimeout(call: Promise<unknown>): Promise<void> {
    expect(await failureOf(call)).toMatchObject({
      code: "DEPENDENCY_DOWN",
      message: expect.stringContaining("timeout"),
    });
  }
});

async function failureOf(call: Promise<unknown>): Promise<TenureError> {
  const error = await call.then(
    () => new Error("it succeeded"),
    (refused: unknown) => refused,
  );
  expect(error).toBeInstanceOf(TenureError);
  return error as TenureError;
}

const reply = (status: number, body: object) => raw(status, JSON.stringify(body));

const raw =
  (status: number, body: string, type = "application/json"): RequestListener =>
  (_, response) => {
    response.writeHead(status, { "content-type": type }).end(body);
  };

async function serve(options: Partial<AdminOptions>, answer: RequestListener) {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  onTestFinished(close);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { admin: createAdmin({ url, ...options }), url, requests, close };
}

test("allPages requests each page by the cursor of the former one, until there is none", async () => {
  const cursors: (string | undefined)[] = [];
  const all = await allPages(async ({ cursor }) => {
    cursors.push(cursor);
    const at = Number(cursor ?? 0);
    return { items: [at, at + 1], next_cursor: at < 4 ? String(at + 2) : null };
  });
  expect(all).toEqual([0, 1, 2, 3, 4, 5]);
  expect(cursors).toEqual([undefined, "2", "4"]);
});
