import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { TokenCreate } from "@tenure/protocol";
import { Session } from "@tenure/sdk";
import { spawnUnit } from "@tenure/testing/fleet/node-unit";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { type AttackedServer, attackServer } from "./scene.ts";

// A join token enrols one node, with the name, labels and tenant that it names, until it ends; a token of the table is
// good until its end.

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

const CONNECTED = /^node-unit .* is connected/;
const PATIENT = { deadlineMs: 60_000, everyMs: 100 };

let server: AttackedServer;
beforeAll(async () => {
  server = await attackServer([{ name: "admin", role: "admin", tenant: "*" }]);
});
afterAll(() => server.stop());

async function create(body: TokenCreate): Promise<string> {
  const answer = await server.as("admin", "POST", "/api/v1/tokens", body);
  expect(answer).toMatchObject({ status: 200 });
  return (answer.body as { secret: string }).secret;
}

const joinToken = (more: Partial<TokenCreate> = {}) =>
  create({ name: "join", role: "node", join: true, tenant: "default", ...more });

function spawn(name: string, env: Record<string, string>, dataDir = scratchDirectory("unit")) {
  const unit = spawnUnit({ name, urls: [server.url], env, dataDir });
  onTestFinished(async () => void (await unit.kill9()));
  return unit;
}

interface ListedNode {
  name: string;
  online: boolean;
  tenants: string[];
  labels: Record<string, string>;
}

async function onlineNodes(): Promise<ListedNode[]> {
  const { body } = await server.as("admin", "GET", "/api/v1/nodes?limit=500");
  return (body as { items: ListedNode[] }).items.filter(({ online }) => online);
}

/** The agent ends, and prints why. */
async function untilRefused(unit: ReturnType<typeof spawn>, reason: RegExp): Promise<void> {
  const exit = await Promise.race([unit.exited, wait(60_000, undefined, { ref: false })]);
  if (!exit) throw new Error(`the agent did not end: ${unit.stderr()}`);
  expect(exit.code, unit.stderr()).not.toBe(0);
  expect(unit.stdout() + unit.stderr()).toMatch(reason);
}

test("of two nodes that race with one join token one gets in, and a replay later does not", async () => {
  const secret = await joinToken();
  const env = { TENURE_JOIN_TOKEN: secret };
  const racers = [spawn("racer-1", env), spawn("racer-2", env)];
  const outcomes = await Promise.all(
    racers.map((unit) =>
      Promise.race([
        unit.waitForLine(CONNECTED).then(() => "connected"),
        unit.exited.then(({ code }) => `ended with ${code}`),
      ]).catch(String),
    ),
  );
  expect(outcomes.filter((outcome) => outcome === "connected")).toHaveLength(1);
  const loser = racers[outcomes.findIndex((outcome) => outcome !== "connected")]!;
  await untilRefused(loser, /JOIN_TOKEN_USED/);
  await untilRefused(spawn("replayer", env), /JOIN_TOKEN_USED/);
  const names = (await onlineNodes()).map(({ name }) => name);
  expect(names.filter((name) => /racer|replayer/.test(name))).toHaveLength(1);
});

test("the token of an enrolled node is worthless with another key, and not stored in the clear elsewhere", async () => {
  const victim = spawn("victim", { TENURE_JOIN_TOKEN: await joinToken() });
  await victim.waitForLine(CONNECTED);
  const file = join(victim.dataDir, "node.token");
  const secret = /tnr_[A-Za-z0-9_-]{43}/.exec(readFileSync(file, "utf8"))![0];
  const thief = spawn("thief", { HOST_TOKEN: secret });
  await thief.waitForLine(/FORBIDDEN|4403|forbidden/);
  // With the file and a key of its own, too.
  const dataDir = scratchDirectory("thief");
  mkdirSync(dataDir, { recursive: true });
  copyFileSync(file, join(dataDir, "node.token"));
  const copier = spawn("copier", {}, dataDir);
  await copier.waitForLine(/another|FORBIDDEN|UNAUTHENTICATED|unauthenticated/);
  const names = (await onlineNodes()).map(({ name }) => name);
  expect(names.filter((name) => /thief|copier/.test(name))).toEqual([]);
  expect(names).toContain("victim");
  expect(server.stdout() + server.stderr() + victim.stdout() + victim.stderr()).not.toContain(
    secret.slice(4),
  );
});

test("a join token is bound to its name, its labels and its tenant", async () => {
  const scopes = { node_name: "web-1", labels: { zone: "vault" } };
  const secret = await joinToken({ name: "web-1", tenant: "blue", scopes });
  const env = { TENURE_JOIN_TOKEN: secret };
  await untilRefused(spawn("web-2", env), /for the node web-1, not web-2/);
  // Its own labels do not reach the names of the server.
  const forged = { ...env, NODE_UNIT_LABELS: "token/zone=bank" };
  await untilRefused(spawn("web-1", forged), /begin with token\//);
  const unit = spawn("web-1", { ...env, NODE_UNIT_LABELS: "zone=bank" });
  await unit.waitForLine(CONNECTED);
  const node = (await onlineNodes()).find(({ name }) => name === "web-1");
  expect(node).toMatchObject({
    tenants: ["blue"],
    labels: { zone: "bank", "token/zone": "vault" },
  });

  const spec = { command: "exec sleep 1000", selector: { "token/zone": "vault" } };
  const ids: string[] = [];
  for (const tenant of ["default", "blue"]) {
    const path = `/api/v1/deployments?tenant=${tenant}`;
    const { body } = await server.as("admin", "POST", path, { ...spec, name: `of-${tenant}` });
    ids.push((body as { id: string }).id);
  }
  const read = async (id: string) =>
    (await server.as("admin", "GET", `/api/v1/deployments/${id}`)).body as {
      address: string;
      status: { state: string }[];
    };
  const runs = async (id: string) =>
    (await read(id)).status.some(({ state }) => state === "running");
  await until(() => runs(ids[1]!), { ...PATIENT, what: "the deployment of the tenant blue" });
  expect(await read(ids[0]!)).toMatchObject({ address: "", status: [] });
});

test("a join token that is over enrols no node", async () => {
  const secret = await joinToken({ expires_in_seconds: 1 });
  await wait(1_500);
  await untilRefused(spawn("late", { TENURE_JOIN_TOKEN: secret }), /the join token has expired/);
  const revoked = await server.as("admin", "POST", "/api/v1/tokens", {
    ...{ name: "gone", role: "node", join: true, tenant: "default" },
  });
  const { id, secret: other } = revoked.body as { id: string; secret: string };
  await server.as("admin", "POST", `/api/v1/tokens/${id}/revoke`, {});
  await untilRefused(spawn("gone", { TENURE_JOIN_TOKEN: other }), /unknown join token/);
});

test("a token that expires closes what is open with it, and opens nothing more", async () => {
  const expires_in_seconds = 8;
  const mine = { tenant: "default", expires_in_seconds };
  const endsMs = Date.now() + expires_in_seconds * 1_000;
  const viewer = await create({ name: "short-viewer", role: "viewer", ...mine });
  const session = await create({ name: "short-session", role: "session", ...mine });
  const ask = () => server.get("/api/v1/me", { headers: { authorization: `Bearer ${viewer}` } });
  const losses: string[] = [];
  const client = new Session({
    ...{ url: server.url, token: session },
    on: { down: ({ kind, code }) => void losses.push(`${kind} ${code}`) },
  });
  onTestFinished(() => client.close());
  await until(() => client.id, { ...PATIENT, what: "the session" });
  expect((await ask()).status).toBe(200);
  await until(async () => (await ask()).status === 401, { ...PATIENT, what: "the end" });
  expect(Date.now()).toBeGreaterThan(endsMs - 1_000);
  await until(() => losses.length > 0, { ...PATIENT, what: "the session to be closed" });
  expect(losses[0]).toBe("unauthenticated 4401");
  const again = new Session({
    ...{ url: server.url, token: session },
    on: { down: ({ kind, code }) => void losses.push(`${kind} ${code}`) },
  });
  onTestFinished(() => again.close());
  await until(() => losses.length > 1, { ...PATIENT, what: "the refusal" });
  expect(losses[1]).toMatch(/^unauthenticated/);
  expect(again.id).toBeUndefined();
});
