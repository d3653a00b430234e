import type { DeploymentView } from "@tenure/protocol";
import { connectRawNode } from "@tenure/testing/fleet/raw-node";
import { startTenure } from "@tenure/testing/processes/process";
import { afterAll, beforeAll, expect, test } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import type { AttackedServer, AttackToken } from "./scene.ts";

// An admin of one tenant must neither see nor change the deployments of another.

const TOKENS: AttackToken[] = [
  { name: "admin", role: "admin" },
  { name: "blue-admin", role: "admin", tenant: "blue" },
  { name: "blue-viewer", role: "viewer", tenant: "blue" },
  { name: "all-admin", role: "admin", tenant: "*" },
  { name: "node", role: "node" },
];
const PATH = "/api/v1/deployments";

let server: AttackedServer;
beforeAll(async () => {
  server = await attackServerOnPostgres(TOKENS);
});
afterAll(() => server.stop());

async function create(token: string, spec: object, query = ""): Promise<DeploymentView> {
  const answer = await server.as(token, "POST", `${PATH}${query}`, {
    command: "sleep 60",
    ...spec,
  });
  expect(answer).toMatchObject({ status: 201 });
  return answer.body as DeploymentView;
}

async function items(token: string, path: string): Promise<unknown[]> {
  const { body } = await server.as(token, "GET", path);
  return (body as { items: unknown[] }).items;
}

const names = async (token: string, query = ""): Promise<string[]> => {
  const { body } = await server.as(token, "GET", `${PATH}${query}`);
  return (body as { items: DeploymentView[] }).items.map(({ tenant, name }) => `${tenant}/${name}`);
};

test("each tenant has names of its own, and sees nothing of the others", async () => {
  const env = { KEY: "sk-live-of-default" };
  const own = await create("admin", { name: "web", env });
  const blue = await create("blue-admin", { name: "web" });
  expect([own.tenant, blue.tenant, blue.name]).toEqual(["default", "blue", "web"]);
  expect(await names("admin")).toEqual(["default/web"]);
  expect(await names("blue-viewer")).toEqual(["blue/web"]);
  expect((await names("all-admin")).sort()).toEqual(["blue/web", "default/web"]);
  expect(await names("all-admin", "?tenant=blue")).toEqual(["blue/web"]);
  for (const [method, path, body] of [
    ["GET", "", undefined],
    ["PATCH", "", { enabled: false }],
    ["DELETE", "", undefined],
    ["POST", "/restart", undefined],
    ["POST", "/rollback", {}],
    ["GET", "/revisions", undefined],
    ["GET", "/why", undefined],
    ["GET", "/fence?generation=0", undefined],
    ["GET", "/logs", undefined],
  ] as const) {
    const answer = await server.as("blue-admin", method, `${PATH}/${own.id}${path}`, body);
    expect([method, path, answer.status]).toEqual([method, path, 404]);
    expect(JSON.stringify(answer.body)).not.toContain("sk-live");
  }
  expect((await server.as("blue-admin", "GET", `${PATH}/web`)).body).toMatchObject({ id: blue.id });
  expect(await server.as("blue-admin", "GET", `${PATH}?tenant=default`)).toMatchObject({
    status: 403,
  });
  expect(
    await server.as("blue-admin", "POST", PATH, { command: "x", tenant: "default" }),
  ).toMatchObject({ status: 403 });
  expect(
    await server.as("blue-admin", "PATCH", `${PATH}/${blue.id}`, { tenant: "red" }),
  ).toMatchObject({ status: 403 });
  const taken = await server.as("blue-admin", "POST", PATH, { name: "web", command: "x" });
  expect(taken).toMatchObject({ status: 409 });
});

test("a token of all tenants names the tenant it writes to, and moves deployments", async () => {
  const unnamed = await server.as("all-admin", "POST", PATH, { name: "free", command: "x" });
  expect(unnamed).toMatchObject({ status: 400 });
  const red = await create("all-admin", { name: "app", tenant: "red" });
  const green = await create("all-admin", { name: "app" }, "?tenant=green");
  expect([red.tenant, green.tenant]).toEqual(["red", "green"]);
  expect(await server.as("all-admin", "GET", `${PATH}/app`)).toMatchObject({ status: 409 });
  const found = await server.as("all-admin", "GET", `${PATH}/app?tenant=green`);
  expect(found.body).toMatchObject({ id: green.id });
  const env = { TENURE_TOKEN: server.secretOf("all-admin"), TENURE_TENANT: "red" };
  const args = ["deployment", "move", "app", "--tenant", "blue", "--url", server.url];
  const { code } = await startTenure(args, { env }).exited;
  expect(code).toBe(0);
  const moved = await server.as("blue-viewer", "GET", `${PATH}/app`);
  expect(moved.body).toMatchObject({ id: red.id, tenant: "blue", revision: red.revision });
  const clash = await server.as("all-admin", "PATCH", `${PATH}/${green.id}`, { tenant: "blue" });
  expect(clash).toMatchObject({ status: 409 });
  // It is known who moved it, and the tenant it went to sees that.
  const actor = expect.objectContaining({ name: "all-admin", tenant: "*" });
  const entries = await items("all-admin", `/api/v1/audit?subject=${red.id}`);
  expect(entries[0]).toMatchObject({
    ...{ action: "deployment.update", actor, details: { tenant: "blue" } },
  });
  const events = await items("blue-viewer", `/api/v1/events?subject=${red.id}`);
  expect(events[0]).toMatchObject({
    ...{ message: "deployment app was moved to tenant blue", details: { actor } },
  });
});

test("a deployment is not taken from a node that runs it, unless forced", async () => {
  const { id, generation } = await create("admin", { name: "runs" });
  const node = await connectRawNode({ url: server.url });
  await node.register({ token: server.secretOf("node"), custom_command: true });
  const params = { candidates: [{ id, generation }] };
  node.send({ type: "request", id: "claim", method: "deployment.claim", params });
  await node.receive("response");
  const owner = async () => (await server.as("admin", "GET", `${PATH}/${id}`)).body;
  expect(await owner()).toMatchObject({ address: node.key.address });
  const move = (body: object) => server.as("all-admin", "PATCH", `${PATH}/${id}`, body);
  expect(await move({ tenant: "blue" })).toMatchObject({ status: 409 });
  expect(await owner()).toMatchObject({ tenant: "default", address: node.key.address });
  expect(await move({ tenant: "blue", force: true })).toMatchObject({
    ...{ status: 200, body: { tenant: "blue", address: "", generation: generation + 2 } },
  });
  await node.close();
});
