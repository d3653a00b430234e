import { randomUUID } from "node:crypto";
import type { NodeRegister } from "@tenure/protocol";
import type { RawNode } from "@tenure/testing/fleet/raw-node";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { joinNode } from "./raw-unit.ts";
import { type AttackedServer, attackServer } from "./scene.ts";

// One node floods its server on the embedded stores, which have a single connection. What others ask must not wait
// for the end of the flood: the order of the answers shows it, not a clock.

const CALLS = 4_000;
const CALLS_PER_SECOND = 500;

let server: AttackedServer;
const nodes: RawNode[] = [];

beforeAll(async () => {
  server = await attackServer(
    [
      { name: "admin", role: "admin" },
      { name: "good", role: "node" },
      { name: "evil", role: "node" },
      { name: "busy", role: "node" },
    ],
    { settings: `[limits]\ntoken_calls_per_second_max = ${CALLS_PER_SECOND}` },
  );
});
afterEach(() => {
  for (const { socket } of nodes.splice(0)) socket.terminate();
});
afterAll(() => server?.stop());

async function node(token: string, registration?: Partial<NodeRegister>): Promise<RawNode> {
  const connected = await joinNode(server, token, registration);
  nodes.push(connected);
  return connected;
}

/** Each one is a statement. */
const reportOfNothing = () => ({
  deployment_id: randomUUID(),
  generation: 1,
  state: "running",
});

function flood(evil: RawNode): void {
  for (let k = 0; k < CALLS; k++) {
    evil.send({ type: "request", id: k, method: "deployment.report", params: reportOfNothing() });
  }
}

test("presence, calls of other nodes and the API do not wait for a flood of calls", async () => {
  const good = await node("good");
  const evil = await node("evil");
  flood(evil);
  await until(() => evil.count("response") > 0, { what: "the flood" });

  expect(await good.heartbeat(1)).toMatchObject({ presence_ok: true });
  expect((await good.call("deployment.list", {})).error).toBeUndefined();
  expect((await server.as("admin", "GET", "/api/v1/deployments")).status).toBe(200);
  expect((await server.health()).status).toBe("ready");
  const answered = evil.count("response");
  console.log(`${answered} of ${CALLS} calls of the flood were answered before`);
  expect(answered).toBeLessThan(CALLS / 2);
});

test("a flood of heartbeats costs no more than its newest", async () => {
  const good = await node("good");
  const evil = await node("evil");
  for (let seq = 1; seq <= CALLS; seq++) evil.send({ type: "node_heartbeat", seq, running: [] });
  expect(await good.heartbeat(1)).toMatchObject({ presence_ok: true });
  await evil.receive("node_heartbeat_ack", ({ seq }) => seq === CALLS);
  console.log(`${evil.count("node_heartbeat_ack")} of ${CALLS} heartbeats were acknowledged`);
  expect(evil.count("node_heartbeat_ack")).toBeLessThan(CALLS / 2);
});

test("the sockets of one token share its budget of calls", async () => {
  const sockets = await Promise.all([node("busy"), node("busy")]);
  const begunMs = performance.now();
  // The budget of two seconds may be spent at once; what is above takes its time.
  const calls = 3 * CALLS_PER_SECOND;
  for (const socket of sockets) {
    for (let id = 0; id < calls / 2; id++) {
      socket.send({ type: "request", id, method: "deployment.list", params: { revision: "x:1" } });
    }
  }
  const answered = () => sockets.reduce((sum, socket) => sum + socket.count("response"), 0);
  await until(() => answered() === calls, { what: "all answers" });
  expect(performance.now() - begunMs).toBeGreaterThan(900);
});

test("a worker that is no node-unit gets no list of the members", async () => {
  const worker = await node("good", { tags: {}, pools: ["p"], capacity: 1 });
  const { error, result } = await worker.call("member.list", {});
  expect(result).toBeUndefined();
  expect(error).toMatchObject({ code: "FORBIDDEN" });
});

test("reports that change their state all the time write few events", async () => {
  const body = { name: "flooded", type: "daemon", command: "true" };
  const created = await server.as("admin", "POST", "/api/v1/deployments", body);
  const { id, generation } = created.body as { id: string; generation: number };
  const evil = await node("evil");
  for (let k = 0; k < 60; k++) {
    const report = { deployment_id: id, generation, last_error: "ERR_DAEMON_MISSING" };
    await evil.call("deployment.report", { ...report, state: k % 2 ? "failed" : "stopped" });
  }
  const { body: list } = await server.as("admin", "GET", "/api/v1/events?limit=500");
  const { items } = list as { items: { event: string; subject: string | null }[] };
  const told = items.filter((item) => item.subject === id && item.event !== "deployment.created");
  console.log(`60 reports made ${told.length} events`);
  expect(told.length).toBeGreaterThan(0);
  expect(told.length).toBeLessThanOrEqual(10);
});
