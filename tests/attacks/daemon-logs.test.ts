import type { DeploymentView, LogPage } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import type { AttackedServer } from "./scene.ts";

// A node that may not run a daemon must not be the one that its log is read from.

const FORGED = "FORGED: all good";

let server: AttackedServer;
const nodes: RawNode[] = [];
beforeAll(async () => {
  server = await attackServerOnPostgres([
    { name: "admin", role: "admin" },
    { name: "node", role: "node" },
  ]);
});
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.close()));
  await server.stop();
});

/** A node-unit whose log of everything is this line. */
async function join(name: string, line: string, traits: object): Promise<RawNode> {
  const node = await connectRawNode({ url: server.url });
  nodes.push(node);
  node.socket.on("message", (data) => {
    const message = JSON.parse(data.toString());
    if (message.type !== "request") return;
    node.send({ type: "response", id: message.id, result: { lines: [line], next: "0:0" } });
  });
  await node.register({ token: server.secretOf("node"), name, ...traits });
  return node;
}

let lastCall = 0;
async function report(node: RawNode, { id, generation }: DeploymentView, state = "running") {
  const call = `report-${++lastCall}`;
  const params = { deployment_id: id, generation, state };
  node.send({ type: "request", id: call, method: "deployment.report", params });
  return node.receive("response", (message) => message.id === call);
}

const logs = async (query = "") =>
  server.as("admin", "GET", `/api/v1/deployments/pay/logs${query}`);

const linesOf = ({ body }: { body: unknown }) => (body as Partial<LogPage>).lines;

test("a daemon's log comes from a node that may run it, and from the one that is named", async () => {
  const spec = { name: "pay", type: "daemon", command: "pay", selector: { zone: "vault" } };
  const created = await server.as("admin", "POST", "/api/v1/deployments", spec);
  const daemon = created.body as DeploymentView;
  const vault = { labels: { zone: "vault" }, custom_command: true };
  const strangers = [
    await join("elsewhere", FORGED, { custom_command: true }),
    await join("locked", FORGED, { labels: { zone: "vault" } }),
  ];
  // A node that is not admitted any more says so, and gets no say in the log by it.
  for (const stranger of strangers)
    expect((await report(stranger, daemon, "stopped")).error).toBeUndefined();
  expect(linesOf(await logs())).not.toEqual([FORGED]);
  const good = await join("good", "the true log", vault);
  expect((await report(good, daemon)).error).toBeUndefined();
  const refused = [];
  for (const stranger of strangers) refused.push((await report(stranger, daemon)).error?.code);
  expect([linesOf(await logs()), refused]).toEqual([["the true log"], ["FORBIDDEN", "FORBIDDEN"]]);
  const seen = await server.as("admin", "GET", "/api/v1/deployments/pay");
  const running = (seen.body as DeploymentView).status.filter(({ state }) => state === "running");
  expect(running.map(({ address }) => address)).toEqual([good.key.address]);
  const second = await join("second", "the log of the second", vault);
  expect((await report(second, daemon)).error).toBeUndefined();
  const several = await logs();
  expect(several).toMatchObject({ status: 409, body: { error: { code: "CONFLICT" } } });
  expect(JSON.stringify(several.body)).toContain("good, second");
  const named = (await logs("?node=second")).body as LogPage;
  expect(named).toMatchObject({ address: second.key.address, lines: ["the log of the second"] });
});

test("a node that takes the name of another does not answer for it", async () => {
  await join("good", FORGED, {});
  expect(await logs("?node=good")).toMatchObject({ status: 409 });
  expect(linesOf(await logs(`?node=${nodes[2]!.key.address}`))).toEqual(["the true log"]);
});
