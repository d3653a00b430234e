import { randomBytes } from "node:crypto";
import type { DeploymentView } from "@tenure/protocol";
import type { RawNode } from "@tenure/testing/fleet/raw-node";
import { storeSettings } from "@tenure/testing/fleet/running-server";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type RawUnit, rawUnit } from "./raw-unit.ts";
import { type AttackedServer, type AttackToken, attackServer } from "./scene.ts";

// What a tenant and its nodes can learn of the deployments of others, and of those that were moved to or from it.

const TOKENS: AttackToken[] = [
  { name: "admin", role: "admin" },
  { name: "blue-admin", role: "admin", tenant: "blue" },
  { name: "all-admin", role: "admin", tenant: "*" },
  { name: "node", role: "node" },
  { name: "blue-node", role: "node", tenant: "blue" },
  { name: "both-node", role: "node", scope: { tenants: ["default", "blue"] } },
];
const PATH = "/api/v1/deployments";

let database: TestDatabase;
let server: AttackedServer;
let second: AttackedServer;
const units: RawUnit[] = [];
beforeAll(async () => {
  const { postgresAdminUri, redisUrl } = stores();
  database = await createDatabase(postgresAdminUri);
  const env = {
    ...storeSettings({ postgresUri: database.uri, redisUrl }),
    TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: uniqueKeyPrefix(),
    TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_REFRESH_INTERVAL_MS: "500",
    TENURE_AUTH_PEER_TOKEN: "peers-of-an-attacked-fleet",
  };
  server = await attackServer(TOKENS, { env });
  second = await attackServer(TOKENS, { env });
});
afterAll(async () => {
  await Promise.all(units.map(({ raw }) => raw.close()));
  await Promise.all([server?.stop(), second?.stop()]);
  await database?.drop();
});

async function create(token: string, spec: object): Promise<DeploymentView> {
  const answer = await server.as(token, "POST", PATH, { command: "sleep 60", ...spec });
  expect(answer).toMatchObject({ status: 201 });
  return answer.body as DeploymentView;
}

async function move(at: AttackedServer, id: string, tenant: string): Promise<void> {
  expect(await at.as("all-admin", "PATCH", `${PATH}/${id}`, { tenant })).toMatchObject({
    ...{ status: 200, body: { tenant } },
  });
}

/** A node-unit that answers all calls, and has this line in each log. */
async function join(token: string, line: string, key?: RawNode["key"]): Promise<RawUnit> {
  const unit = await rawUnit(server, token, { custom_command: true }, key);
  units.push(unit);
  unit.raw.socket.on("message", (data) => {
    const { type, id, method } = JSON.parse(data.toString());
    if (type !== "request") return;
    const result = method === "log.read" ? { lines: [line], next: "0:0" } : {};
    unit.raw.send({ type: "response", id, result });
  });
  return unit;
}

const asked = ({ raw }: RawUnit, method: string) =>
  raw.received.flatMap((message) =>
    message.type === "request" && message.method === method ? [message] : [],
  );

/** The text of a followed log, and whether the server has ended it. */
async function follow(at: AttackedServer, token: string, id: string) {
  const response = await fetch(`${at.url}${PATH}/${id}/logs?follow=true`, {
    headers: { authorization: `Bearer ${at.secretOf(token)}` },
  });
  expect(response.status).toBe(200);
  const log = { text: "", isEnded: false };
  (async () => {
    for await (const bytes of response.body!) log.text += Buffer.from(bytes).toString();
  })()
    .catch(() => {})
    .finally(() => {
      log.isEnded = true;
    });
  return log;
}

test("a log that is followed ends when its deployment leaves the tenant", async () => {
  const unit = await join("both-node", "");
  const { id, generation } = await create("admin", { name: "followed" });
  await unit.call("deployment.claim", { candidates: [{ id, generation }] });
  const isKnown = async () =>
    (await second.as("admin", "GET", `${PATH}/${id}/logs`)).status === 200;
  await until(isKnown, { what: "the node to be known at the other instance" });
  const followed = [await follow(server, "admin", id), await follow(second, "admin", id)];
  const write = (line: string) => {
    for (const { id } of asked(unit, "log.follow"))
      unit.raw.send({ type: "log_chunk", id, lines: [line], next: "0:1" });
  };
  write("line-of-default");
  const isRead = () => followed.every(({ text }) => text.includes("line-of-default"));
  await until(isRead, { what: "the first line" });
  // At the instance that the first one does not follow at: it learns of the move from the table.
  await move(second, id, "blue");
  const own = await follow(server, "blue-admin", id);
  await until(() => asked(unit, "log.stop").length >= 2 || followed.every((log) => log.isEnded), {
    what: "the logs to end",
    deadlineMs: 3_000,
  }).catch(() => {});
  write("line-of-blue");
  await until(() => own.text.includes("line-of-blue"), { what: "the line for blue" });
  expect(followed.map(({ text }) => text.includes("line-of-blue"))).toEqual([false, false]);
  expect(followed.map(({ isEnded }) => isEnded)).toEqual([true, true]);
  expect(await server.as("blue-admin", "DELETE", `${PATH}/${id}`)).toMatchObject({ status: 204 });
  await until(() => own.isEnded, { what: "the log of a deleted deployment to end" });
});

test("a node learns no ids of deployments of tenants that it never served", async () => {
  const unit = await join("blue-node", "");
  const own = await create("blue-admin", { name: "own" });
  const deleted = await create("blue-admin", { name: "deleted" });
  const { revision } = await unit.call("deployment.list", {});
  const foreign = await create("admin", { name: "foreign" });
  const gone = await create("admin", { name: "gone" });
  await server.as("admin", "DELETE", `${PATH}/${gone.id}`);
  for (const from of [revision, revision.replace(/\d+$/, "1")]) {
    const { removed, items } = await unit.call("deployment.list", { revision: from });
    expect(JSON.stringify({ removed, items })).not.toMatch(`${foreign.id}|${gone.id}`);
  }
  // What it had is listed, once.
  await move(server, own.id, "default");
  await server.as("blue-admin", "DELETE", `${PATH}/${deleted.id}`);
  const after = await unit.call("deployment.list", { revision });
  expect([...after.removed].sort()).toEqual([own.id, deleted.id].sort());
  await server.as("admin", "PATCH", `${PATH}/${own.id}`, { command: "sleep 61" });
  expect((await unit.call("deployment.list", { revision: after.revision })).removed).toEqual([]);
});

test.each([
  "daemon",
  "deployment",
])("a moved %s is not shown with the former tenant's node, and that node gets no call about it", async (type) => {
  const unit = await join("node", "line-of-a-stranger");
  const name = `moved-${type}`;
  const { id, generation } = await create("admin", { name, type });
  const term = { id, generation };
  const owned =
    type === "daemon" ? term : await unit.call("deployment.claim", { candidates: [term] });
  await unit.call("deployment.report", {
    ...{ deployment_id: id, generation: owned.generation },
    ...{ state: "failed", last_error: "secret-of-default" },
  });
  const own = await server.as("admin", "GET", `${PATH}/${id}/logs`);
  expect(own.body).toMatchObject({ lines: ["line-of-a-stranger"] });
  if (type === "deployment") await server.as("admin", "PATCH", `${PATH}/${id}`, { enabled: false });
  await move(server, id, "blue");
  if (type === "deployment")
    await server.as("blue-admin", "PATCH", `${PATH}/${id}`, { enabled: true });
  const calls = unit.raw.count("request");
  const read = (path: string) => server.as("blue-admin", "GET", `${PATH}/${id}${path}`);
  const answers = [await read(""), await read("/why"), await read("/logs")];
  const restarted = await server.as("blue-admin", "POST", `${PATH}/${id}/restart`);
  expect(JSON.stringify(answers)).not.toMatch(`${unit.address}|secret-of-default|line-of`);
  expect([answers[2]!.status, restarted.status]).toEqual([404, 409]);
  expect(unit.raw.count("request")).toBe(calls);
  await server.as("blue-admin", "DELETE", `${PATH}/${id}`);
});

test.each([
  "daemon",
  "deployment",
])("a node that changes to another tenant is not shown with a %s of the former one, and gets no call about it", async (type) => {
  const unit = await join("node", "line-of-default");
  const { id, generation } = await create("admin", { name: `left-${type}`, type });
  const term = { id, generation };
  const owned =
    type === "daemon" ? term : await unit.call("deployment.claim", { candidates: [term] });
  await unit.call("deployment.report", {
    ...{ deployment_id: id, generation: owned.generation, state: "failed", last_error: "crash" },
  });
  await unit.raw.close();
  const changed = await join("blue-node", "line-of-blue", unit.raw.key);
  const read = (path: string) => server.as("admin", "GET", `${PATH}/${id}${path}`);
  const [row, log] = [await read(""), await read("/logs")];
  const restarted = await server.as("admin", "POST", `${PATH}/${id}/restart`);
  expect(row.body).toMatchObject({ status: [] });
  expect([log.status, restarted.status]).toEqual([404, 409]);
  expect(changed.raw.count("request")).toBe(0);
  await server.as("admin", "DELETE", `${PATH}/${id}`);
});

test("daemons of two tenants with one package are not reported as doubled", async () => {
  const spec = { type: "daemon", command: "", package_name: "agent", package_version: "1.0.0" };
  await create("admin", { ...spec, name: "secret-daemon" });
  const blue = await create("blue-admin", { ...spec, name: "blue-1" });
  const twin = await create("blue-admin", { ...spec, name: "blue-2" });
  const doubled = async () => {
    const { body } = await server.as("blue-admin", "GET", "/api/v1/events?event=daemon.doubled");
    return (body as { items: { subject: string; message: string }[] }).items;
  };
  const ofTwin = async () => (await doubled()).filter(({ subject }) => subject === twin.id);
  await until(async () => (await ofTwin()).length > 0, { what: "the event about the second" });
  expect((await doubled()).map(({ subject }) => subject)).not.toContain(blue.id);
  expect(JSON.stringify(await doubled())).not.toContain("secret-daemon");
});

test("why does not reveal the size of the fleet to a tenant", async () => {
  const unit = await join("both-node", "");
  const { id } = await create("blue-admin", { name: "held" });
  const client = new Client({ connectionString: database.uri });
  await client.connect();
  await client.query(`update deployment set address = 'gone' where id = '${id}'`);
  // Six node-units that were there for two hours leave at once.
  await client.query(`
    insert into node_unit
    select (jsonb_populate_record(unit, jsonb_build_object(
             'address', 'lost-' || n, 'online', false, 'left_at', tenure_now(),
             'joined_at', tenure_now() - interval '2 hours'))).*
      from node_unit as unit, generate_series(1, 6) as n
     where unit.address = '${unit.address}'`);
  const why = async (token: string) =>
    JSON.stringify((await server.as(token, "GET", `${PATH}/${id}/why`)).body);
  const isOn = async () => /\(6 of \d+ node-units/.test(await why("all-admin"));
  await until(isOn, { what: "the brake to be on" });
  const shown = await why("blue-admin");
  await client.query("delete from node_unit where address like 'lost-%'");
  await client.end();
  expect(shown).toContain("brake_active");
  expect(shown).not.toMatch(/\d+ of \d+ node-units were lost/);
});

test("a signer is moved within the tenant that the caller names", async () => {
  const signer = `eip155:1:0x${randomBytes(20).toString("hex")}`;
  const path = `/api/v1/signers/${signer}`;
  const body = { next_nonce: 1, confirm: true };
  expect(await server.as("all-admin", "PUT", `${path}?tenant=default`, body)).toMatchObject({
    status: 200,
  });
  const moved = (query: string) =>
    server.as("all-admin", "POST", `${path}/move${query}`, { tenant: "green" });
  expect(await moved("?tenant=blue")).toMatchObject({ status: 404 });
  expect((await server.as("admin", "GET", path)).body).toMatchObject({ tenant: "default" });
  expect(await moved("?tenant=default")).toMatchObject({ status: 200, body: { tenant: "green" } });
});
