import { randomUUID } from "node:crypto";
import { encodeBase58 } from "@tenure/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import { attackServerOnPostgres } from "./on-postgres.ts";
import { head, openRaw, upgradeHead } from "./raw.ts";
import { joinNode } from "./raw-unit.ts";
import type { AttackedServer } from "./scene.ts";

let server: AttackedServer;
beforeAll(async () => {
  server = await attackServerOnPostgres([
    { name: "admin", role: "admin" },
    { name: "node", role: "node" },
    { name: "peer", role: "peer" },
  ]);
});
afterAll(() => server?.stop());

const bearer = (name: string): string => `authorization: Bearer ${server.secretOf(name)}`;

/** The first line of the answer to exactly these bytes. */
async function statusOf(request: string): Promise<string> {
  const client = await openRaw(server.url);
  client.socket.write(request);
  await client.waitFor(/^HTTP\/1.1 \d{3} .*\r\n/);
  client.socket.destroy();
  return client.received().split("\r\n")[0] ?? "";
}

// With the identity point as key, the signature of identity point and zero is right for every text.
test("an address that is a point of small order is not let in without a private key", async () => {
  const point = Buffer.alloc(32);
  point[0] = 1;
  const signature = Buffer.concat([point, Buffer.alloc(32)]).toString("base64");
  const socket = new WebSocket(`${server.url.replace("http", "ws")}/ws/node`);
  const closed = new Promise<number>((resolve) => socket.once("close", resolve));
  const told: string[] = [];
  socket.on("message", (data) => {
    const message = JSON.parse(data.toString());
    told.push(message.type);
    if (message.type === "node_register_ack") socket.close(1000);
    if (message.type !== "node_challenge") return;
    socket.send(
      JSON.stringify({
        ...{ type: "node_register", protocol_version: 1, address: encodeBase58(point) },
        ...{ boot_id: randomUUID(), signature, token: server.secretOf("node") },
        ...{ name: "nobody", version: "0.0.0", tags: {} },
      }),
    );
  });
  expect(await closed).toBe(4401);
  expect(told).not.toContain("node_register_ack");
});

test.each([
  "deployments",
  "signers",
  "nodes",
  "events",
  "jobs",
])("a NUL in the cursor of /%s is the caller's mistake", async (list) => {
  const { status } = await server.as("admin", "GET", `/api/v1/${list}?cursor=%00`);
  expect(status).toBe(400);
});

test("two Host headers are refused, on requests and upgrades", async () => {
  const second = "host: evil.example.com";
  expect(await statusOf(head("GET /health/live HTTP/1.1", second))).toContain(" 400 ");
  expect(await statusOf(head("GET /api/v1/me HTTP/1.1", second, bearer("admin")))).toContain(
    " 400 ",
  );
  expect(await statusOf(upgradeHead("/ws/node", second))).toContain(" 403 ");
});

test("role peer does only what an instance passes on", async () => {
  const raise = async (...headers: string[]) => {
    const body = JSON.stringify({ next_nonce: 500 });
    const length = `content-length: ${body.length}`;
    const type = "content-type: application/json";
    const line = "PUT /api/v1/signers/eip155:1:0x0000000000000000000000000000000000000001 HTTP/1.1";
    return statusOf(head(line, bearer("peer"), type, length, ...headers) + body);
  };
  expect(await raise()).toContain(" 403 ");
  expect(await raise("x-tenure-forwarded: i-other")).toContain(" 200 ");
  expect((await server.as("peer", "GET", "/api/v1/deployments")).status).toBe(403);
});

test("answers of the API are not kept by a browser; the console's files still are", async () => {
  const cacheControl = async (path: string) => {
    const headers = { authorization: `Bearer ${server.secretOf("admin")}` };
    return (await fetch(`${server.url}${path}`, { headers })).headers.get("cache-control");
  };
  for (const path of ["/api/v1/deployments", "/api/v1/me", "/api/v1/nowhere", "/metrics"])
    expect(await cacheControl(path)).toBe("no-store");
  expect(await cacheControl("/")).toBe("no-cache");
});

test("a number beyond int4 in a report is the node's mistake, not an internal error", async () => {
  const node = await joinNode(server, "node");
  const report = { deployment_id: randomUUID(), generation: 1, state: "running" };
  node.send({
    ...{ type: "request", id: 1, method: "deployment.report" },
    params: { ...report, pid: Number.MAX_SAFE_INTEGER },
  });
  const codes = () => JSON.stringify(node.received.filter(({ type }) => type !== "host_event"));
  await node.call("deployment.report", report);
  expect(codes()).toContain("INVALID_MESSAGE");
  expect(codes()).not.toContain("INTERNAL");
  node.socket.terminate();
});
