import type { DeploymentView, MembershipView } from "@tenure/protocol";
import { connectRawNode, createNodeKey, type RawNode } from "@tenure/testing/fleet/raw-node";
import { storeSettings } from "@tenure/testing/fleet/running-server";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type AttackedServer, type AttackToken, attackServer } from "./scene.ts";

// Tenants share the instances, the brake, the nodes of several tenants and the events of the fleet. What one of them does
// there must not stop another, nor show it what is not its own.

const TOKENS: AttackToken[] = [
  { name: "admin", role: "admin" },
  { name: "node", role: "node" },
  { name: "blue-admin", role: "admin", tenant: "blue" },
  { name: "blue-node", role: "node", tenant: "blue" },
  { name: "blue-signer", role: "signer", tenant: "blue", scope: { signers: ["*"] } },
  { name: "both-node", role: "node", scope: { tenants: ["default", "blue"] } },
  { name: "root", role: "admin", tenant: "*" },
];
const INSTANCE = "fleet-instance";
const DEPLOYMENTS = "/api/v1/deployments";

let server: AttackedServer;
let database: TestDatabase;
const nodes: RawNode[] = [];
const start = () =>
  attackServer(TOKENS, {
    env: storeSettings({ postgresUri: database.uri }),
    settings: `[scheduler.phase2]\ninstance_id = "${INSTANCE}"\n`,
  });
beforeAll(async () => {
  database = await createDatabase(stores().postgresAdminUri);
  server = await start();
});
afterEach(async () => {
  await Promise.all(nodes.splice(0).map((node) => node.close()));
});
afterAll(async () => {
  await server.stop();
  await database.drop();
});

async function join(token: string, key = createNodeKey()): Promise<RawNode> {
  const node = await connectRawNode({ url: server.url, key });
  nodes.push(node);
  const tags = { node_unit: true };
  await node.register({ token: server.secretOf(token), name: token, tags, custom_command: true });
  return node;
}

async function create(token: string, spec: object = {}): Promise<DeploymentView> {
  const answer = await server.as(token, "POST", DEPLOYMENTS, { command: "sleep 60", ...spec });
  expect(answer).toMatchObject({ status: 201 });
  return answer.body as DeploymentView;
}

/** What the node gets of `claim` or `reserve`: the id of the deployment, or the code of the refusal. */
async function take(
  method: "claim" | "reserve",
  node: RawNode,
  { id, generation }: DeploymentView,
): Promise<unknown> {
  const candidates = [{ id, generation }];
  const { result, error } = await node.call(`deployment.${method}`, { candidates });
  return error?.code ?? (result as { id: string }).id;
}

const read = async (token: string, { id }: DeploymentView) =>
  (await server.as(token, "GET", `${DEPLOYMENTS}/${id}`)).body as DeploymentView;

const isBraked = async (token: string): Promise<boolean> =>
  ((await server.as(token, "GET", "/api/v1/membership")).body as MembershipView).brake.active;

async function eventsOf(token: string, query: string): Promise<{ details: object }[]> {
  const { body } = await server.as(token, "GET", `/api/v1/events?limit=500&${query}`);
  return (body as { items: { details: object }[] }).items;
}

test("node-units of one tenant that vanish together do not stop the fail-over of another", async () => {
  const [owner, heir] = [await join("node"), await join("node")];
  const own = await create("admin");
  expect(await take("claim", owner, own)).toBe(own.id);
  const attackers: RawNode[] = [];
  const theirs: DeploymentView[] = [];
  for (let n = 0; n < 6; n++) {
    const attacker = await join("blue-node");
    const row = await create("blue-admin");
    expect(await take("claim", attacker, row)).toBe(row.id);
    attackers.push(attacker);
    theirs.push(row);
  }
  await Promise.all(attackers.map((attacker) => attacker.close()));
  await until(() => isBraked("root"), { what: "the brake of blue" });
  expect([await isBraked("blue-admin"), await isBraked("admin")]).toEqual([true, false]);
  await owner.close();
  const isFree = async () => {
    await heir.call("deployment.release", { addresses: [owner.key.address] });
    return (await read("admin", own)).address === "";
  };
  await until(isFree, { what: "the deployment of default to be released", deadlineMs: 5_000 });
  // Blue's own deployments stay where they are: the brake still protects them.
  const next = await join("blue-node");
  const addresses = attackers.map(({ key }) => key.address);
  expect(await next.call("deployment.release", { addresses })).toMatchObject({
    result: { released: [] },
  });
  await server.as("root", "POST", "/api/v1/membership/release");
  expect(await isBraked("root")).toBe(false);
  for (const row of theirs) await server.as("blue-admin", "DELETE", `${DEPLOYMENTS}/${row.id}`);
});

test("a hand-over that one tenant leaves unfinished does not hold up the drain for another", async () => {
  const shared = await join("both-node");
  const [own, theirs] = [await create("admin"), await create("blue-admin")];
  for (const row of [own, theirs]) expect(await take("claim", shared, row)).toBe(row.id);
  const path = `/api/v1/nodes/${shared.key.address}/drain`;
  expect(await server.as("root", "POST", path)).toMatchObject({ status: 200 });
  const [blue, heir] = [await join("blue-node"), await join("node")];
  expect(await take("reserve", blue, await read("blue-admin", theirs))).toBe(theirs.id);
  expect(await take("reserve", heir, await read("admin", own))).toBe(own.id);
});

test("a signer named like an instance shows its tenant no event of the fleet, nor the move of a signer", async () => {
  const open = (signer: string) =>
    server.as("blue-signer", "POST", `/api/v1/signers/${signer}/nonces`, { request_id: "r" });
  expect(await open(INSTANCE)).toMatchObject({ status: 200 });
  const started = `subject=${INSTANCE}&event=instance.started`;
  const before = (await eventsOf("root", started)).length;
  await server.stop();
  server = await start();
  await until(async () => (await eventsOf("root", started)).length > before, {
    what: "the event of the second start",
  });
  expect(await eventsOf("blue-admin", started)).toEqual([]);
  await open("moves");
  const move = { tenant: "default" };
  expect(await server.as("root", "POST", "/api/v1/signers/moves/move", move)).toMatchObject({
    status: 200,
  });
  await until(async () => (await eventsOf("root", "event=signer.moved")).length > 0, {
    what: "the event of the move",
  });
  for (const token of ["admin", "blue-admin"])
    expect(await eventsOf(token, "event=signer.moved")).toEqual([]);
});

test("a pin of another tenant neither keeps a node from being removed nor shows that it exists", async () => {
  const key = createNodeKey();
  await create("blue-admin", { pin: key.address, enabled: false });
  await (await join("node", key)).close();
  const remove = () => server.as("admin", "DELETE", `/api/v1/nodes/${key.address}`);
  await until(async () => (await remove()).status === 204, {
    ...{ what: "the node to be removed", deadlineMs: 5_000 },
  });

  const [there, absent] = [await join("node"), createNodeKey()];
  const answersFor = async (pin: string) => {
    const asked = [await server.as("blue-admin", "POST", DEPLOYMENTS, { command: "x", pin })];
    const { id } = asked[0]!.body as DeploymentView;
    for (const [method, path] of [
      ["POST", "/restart"],
      ["GET", "/logs"],
      ["GET", "/why"],
    ] as const)
      asked.push(await server.as("blue-admin", method, `${DEPLOYMENTS}/${id}${path}`));
    const patch = { pin, enabled: false };
    asked.push(await server.as("blue-admin", "PATCH", `${DEPLOYMENTS}/${id}`, patch));
    const text = JSON.stringify(asked.map(({ status, body }) => ({ status, body })));
    return text
      .replaceAll(id, "ID")
      .replaceAll(pin, "PIN")
      .replaceAll(/"(trace_id|created_at|updated_at)":"[^"]*"/g, "");
  };
  expect(await answersFor(there.key.address)).toBe(await answersFor(absent.address));
  expect(there.received.filter(({ type }) => type === "request")).toEqual([]);
});
