import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { ROUTES, TenureError, toErrorBody } from "@tenure/protocol";
import { describe, expect, onTestFinished, test } from "vitest";
import { createAdmin } from "./admin.ts";
import { createNonces } from "./nonces.ts";
import { followStream } from "./stream.ts";

const READY = { status: "ready", instance_id: "i-1", dependencies: [] } as const;
const signer = "eip155:1:0xab";
const allocation = {
  signer,
  nonce: 7,
  hold_id: "0193f0a0-0000-7000-8000-000000000000",
  fencing_token: 1,
  locked_until: "2026-11-17T00:00:00.000Z",
  status: "HELD",
};
const create = (name?: string) => ({ body: { command: "true", ...(name && { name }) } });
const codeOf = (call: Promise<unknown>) =>
  call.then(
    () => "answered",
    (error: TenureError) => error.code,
  );

const answers =
  (status: number, body: object): RequestListener =>
  (_, response) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
/** Takes the request and breaks the connection: whether it was done is unknown to the caller. */
const breaksOff: RequestListener = (request) => request.socket.resetAndDestroy();
const isSilent: RequestListener = () => {};

async function serve(answer: RequestListener) {
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
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests, close };
}

/** A URL at which connections are refused. */
async function refusing(): Promise<string> {
  const { url, close } = await serve(isSilent);
  await close();
  return url;
}

describe("an admin client with several URLs", () => {
  test("skips a server that refuses connections, and calls the good one first from then on", async () => {
    const bad = await serve(breaksOff);
    const good = await serve(answers(200, READY));
    const admin = createAdmin({ url: `${await refusing()}, ${bad.url},${good.url}` });
    for (const _ of [1, 2, 3]) expect(await admin.call(ROUTES.healthReady, {})).toEqual(READY);
    expect([bad.requests.length, good.requests.length]).toEqual([1, 3]);
  });

  test("sends a write to the next server when no connection was made", async () => {
    const good = await serve(answers(200, { active: false }));
    const admin = createAdmin({ url: [await refusing(), good.url] });
    await codeOf(admin.call(ROUTES.releaseBrake, {}));
    expect(good.requests.map(({ url }) => url)).toEqual([ROUTES.releaseBrake.path]);
  });

  test.each([
    ["POST /membership/release", () => ROUTES.releaseBrake, {}],
    ["POST /deployments without a name", () => ROUTES.createDeployment, create()],
    ["POST /deployments/:id/restart", () => ROUTES.restartDeployment, { params: { id: "web" } }],
    ["DELETE /deployments/:id", () => ROUTES.deleteDeployment, { params: { id: "web" } }],
  ])("does not send %s again after an unknown outcome", async (_, route, input) => {
    const bad = await serve(breaksOff);
    const good = await serve(answers(200, {}));
    const admin = createAdmin({ url: [bad.url, good.url] });
    expect(await codeOf(admin.call(route(), input as never))).toBe("DEPENDENCY_DOWN");
    expect([bad.requests.length, good.requests.length]).toEqual([1, 0]);
  });

  test("sends an idempotent write again after an unknown outcome", async () => {
    const bad = await serve(breaksOff);
    const refused = toErrorBody(new TenureError("CONFLICT", { reason: "taken" }));
    const good = await serve(answers(409, refused));
    const input = (n: number) => ({ params: { signer }, body: { request_id: `r-${n}` } });
    const url = [bad.url, good.url];
    expect(await codeOf(createAdmin({ url }).call(ROUTES.createDeployment, create("web")))).toBe(
      "CONFLICT",
    );
    expect(await codeOf(createAdmin({ url }).call(ROUTES.allocateNonces, input(1)))).toBe(
      "CONFLICT",
    );
    expect([bad.requests.length, good.requests.length]).toEqual([2, 2]);
  });

  test("calls the next server when one cannot reach its stores", async () => {
    const down = toErrorBody(new TenureError("DEPENDENCY_DOWN", { dependency: "postgres" }));
    const cutOff = await serve(answers(503, down));
    const good = await serve(answers(200, READY));
    const admin = createAdmin({ url: [cutOff.url, good.url] });
    expect(await admin.call(ROUTES.healthReady, {})).toEqual(READY);
  });

  test("names every server and its reason when none answers", async () => {
    const urls = [await refusing(), await refusing()];
    const admin = createAdmin({ url: urls });
    await expect(admin.call(ROUTES.healthReady, {})).rejects.toThrow(
      `every server is down (${urls[0]}: ECONNREFUSED; ${urls[1]}: ECONNREFUSED)`,
    );
  });
});

test("createNonces skips a silent server, under the same request id", async () => {
  const silent = await serve(isSilent);
  const good = await serve(answers(200, allocation));
  const nonces = createNonces({ url: [silent.url, good.url] });
  const startedMs = performance.now();
  expect(await nonces.allocate(signer)).toMatchObject({ nonce: 7 });
  expect(performance.now() - startedMs).toBeLessThan(8_000);
  // From then on the good one is called first.
  expect(await nonces.allocate(signer)).toMatchObject({ nonce: 7 });
  expect([silent.requests.length, good.requests.length]).toEqual([1, 2]);
});

test("followStream follows the first of several servers that answers", async () => {
  const good = await serve((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const item = { topic: "events", op: "changed", id: "1", at: "2026-11-17T00:00:00.000Z" };
    response.end(`retry: 2000\n\nevent: events\ndata: ${JSON.stringify(item)}\n\n`);
  });
  const url = [await refusing(), good.url];
  const seen = [];
  for await (const { topic } of followStream({ url, signal: new AbortController().signal }))
    seen.push(topic);
  expect(seen).toEqual(["events"]);
});
