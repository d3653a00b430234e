import type { DeploymentView, Job } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type AttackedServer, type AttackToken, attackServer } from "./scene.ts";

// A node of one tenant must not see, run, answer for or report on what belongs to another.

const TOKENS: AttackToken[] = [
  { name: "admin", role: "admin" },
  { name: "node", role: "node" },
  { name: "blue-admin", role: "admin", tenant: "blue" },
  { name: "blue-node", role: "node", tenant: "blue" },
  { name: "both-node", role: "node", scope: { tenants: ["default", "blue"] } },
  { name: "any-node", role: "node", tenant: "red", scope: { tenants: ["*"] } },
];

let server: AttackedServer;
const nodes: RawNode[] = [];
beforeAll(async () => {
  server = await attackServer(TOKENS);
});
afterEach(async () => {
  await Promise.all(nodes.splice(0).map((node) => node.close()));
});
afterAll(() => server.stop());

const worker = { pools: ["work"], capacity: 100, tags: {} };
const unit = { tags: { node_unit: true }, custom_command: true, labels: { zone: "vault" } };

async function join(token: string, as: object): Promise<RawNode> {
  const node = await connectRawNode({ url: server.url });
  nodes.push(node);
  await node.register({ token: server.secretOf(token), name: token, ...as });
  return node;
}

async function submit(token: string, secret: string): Promise<string> {
  const body = { request_id: secret, pool: "work", payload: { secret }, pending_ms: 600_000 };
  const answer = await server.as(token, "POST", "/api/v1/jobs", body);
  expect(answer.status).toBe(202);
  return (answer.body as Job).job_id;
}

const assigned = (node: RawNode, jobId: string) =>
  node.receive("job_assign", ({ job_id }) => job_id === jobId);

test("a job is offered only to nodes that serve its tenant", async () => {
  const blue = await join("blue-node", worker);
  const defaults = await submit("admin", "secret-of-default");
  // A job of its own arrives: what came before it in the same pool would have arrived as well.
  await assigned(blue, await submit("blue-admin", "secret-of-blue"));
  expect(JSON.stringify(blue.received)).not.toContain("secret-of-default");
  const read = await server.as("admin", "GET", `/api/v1/jobs/${defaults}`);
  expect(read.body).toMatchObject({ state: "CREATED" });
  // Many that no node serves cost the others nothing: blue's jobs still go at once.
  for (let more = 0; more < 20; more++) await submit("admin", `secret-of-default-${more}`);
  await assigned(blue, await submit("blue-admin", "secret-of-blue-2"));
  const own = await join("node", worker);
  expect(await assigned(own, defaults)).toMatchObject({ payload: { secret: "secret-of-default" } });
  await own.close();
  const both = await join("both-node", worker);
  await assigned(both, await submit("admin", "secret-3"));
  await blue.close();
  await assigned(both, await submit("blue-admin", "secret-4"));
  await both.close();
  const any = await join("any-node", worker);
  await assigned(any, await submit("blue-admin", "secret-5"));
  expect(JSON.stringify(blue.received)).not.toContain("secret-of-default");
});

test("no node hears why others could not take a job of another tenant", async () => {
  await join("node", worker);
  const body = { request_id: "short", pool: "work", payload: 1, pending_ms: 50 };
  const answer = await server.as("blue-admin", "POST", "/api/v1/jobs?wait_ms=30000", body);
  expect(answer.body).toMatchObject({ outcome: "no_node" });
  expect(JSON.stringify(answer.body)).toContain("no node serves the tenant blue");
});

test("a node-unit sees, claims and reports on deployments of its tenants only", async () => {
  const create = async (spec: object) => {
    const env = { KEY: "sk-live-of-default" };
    const body = { command: "sleep 60", env, selector: { zone: "vault" }, ...spec };
    const answer = await server.as("admin", "POST", "/api/v1/deployments", body);
    expect(answer.status).toBe(201);
    return answer.body as DeploymentView;
  };
  const daemon = await create({ name: "pay-daemon", type: "daemon" });
  const paid = await create({ name: "pay" });
  const own = await join("node", unit);
  const blue = await join("blue-node", unit);
  const list = JSON.stringify(await blue.call("deployment.list", {}));
  expect(list).not.toContain("sk-live-of-default");
  expect(list).not.toContain("pay");
  const members = JSON.stringify(await blue.call("member.list", {}));
  expect(members).toContain(blue.key.address);
  expect(members).not.toContain(own.key.address);
  expect(JSON.stringify(blue.received.filter(({ type }) => type === "host_event"))).not.toContain(
    own.key.address,
  );
  const candidates = [{ id: paid.id, generation: paid.generation }];
  expect((await blue.call("deployment.claim", { candidates })).error).toMatchObject({
    code: "ERR_CLAIM_CONFLICT",
  });
  const report = { deployment_id: daemon.id, generation: daemon.generation, state: "running" };
  expect((await blue.call("deployment.report", report)).error).toMatchObject({
    code: "NOT_FOUND",
  });
  // What is its own it gets.
  expect(JSON.stringify(await own.call("deployment.list", {}))).toContain("sk-live-of-default");
  expect((await own.call("deployment.claim", { candidates })).result).toMatchObject({
    id: paid.id,
  });
  expect((await own.call("deployment.report", report)).error).toBeUndefined();
});
