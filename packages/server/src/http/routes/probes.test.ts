import { connect } from "node:net";
import { text } from "node:stream/consumers";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openApp, openAppDatabase, type TestApp } from "../../../testing/apps.ts";

let database: TestDatabase;
let app: TestApp;
beforeAll(async () => {
  database = await openAppDatabase();
  app = await openApp(database.uri);
});
afterAll(async () => {
  await app?.stop();
  await database?.drop();
});

/** The status of the answer to exactly these lines: HTTP clients add a `Host` of their own. */
async function statusOf(...lines: string[]): Promise<number> {
  const { hostname, port } = new URL(app.url);
  const socket = connect(Number(port), hostname);
  socket.write([...lines, "connection: close", "", ""].join("\r\n"));
  return Number(/^HTTP\/1\.1 (\d+)/.exec(await text(socket))?.[1]);
}

test.each([
  ["GET /health/ready HTTP/1.0"],
  ["GET /health/live HTTP/1.0"],
  ["HEAD /health/ready HTTP/1.0"],
  ["GET /health/ready?from=balancer HTTP/1.0"],
  ["GET /health/ready HTTP/1.1"],
  ["GET /health/ready HTTP/1.1", "host:"],
])("a load balancer's %s without a Host is answered", async (...lines) => {
  expect(await statusOf(...lines)).toBe(200);
});

test.each([
  "GET /api/v1/deployments HTTP/1.0",
  "GET /metrics HTTP/1.0",
  "GET /openapi.json HTTP/1.1",
  "GET / HTTP/1.0",
  "GET /health/../metrics HTTP/1.0",
  "GET /health/%2e%2e/metrics HTTP/1.0",
  "GET //health/ready HTTP/1.0",
  "POST /api/v1/membership/release HTTP/1.1",
])("%s without a Host is refused", async (line) => {
  expect(await statusOf(line, "content-type: application/json", "content-length: 0")).toBe(403);
});

test.each([
  ["host: evil.example.com"],
  ["host: evil.example.com@127.0.0.1"],
  ["origin: http://evil.example.com"],
])("/health/ready with %s is refused: a browser sends it", async (...lines) => {
  expect(await statusOf("GET /health/ready HTTP/1.1", ...lines)).toBe(403);
});
