import { readFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { SLEEPER } from "@tenure/testing/fleet/deployments";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import type { AttackedServer } from "./scene.ts";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 180_000 });

const file = join(scratchDirectory("audit"), "audit.jsonl");
let server: AttackedServer;
let unit: RunningUnit | undefined;

beforeAll(async () => {
  server = await attackServerOnPostgres(
    [
      { name: "alice", role: "admin" },
      { name: "mallory", role: "admin" },
      { name: "looker", role: "viewer" },
      { name: "nodes", role: "node" },
    ],
    { settings: `[audit]\nfile = ${JSON.stringify(file)}` },
  );
});
afterAll(async () => {
  await unit?.stop();
  await server?.stop();
});

interface Entry {
  action: string;
  outcome?: string;
  subject?: string;
  reason?: string;
  token?: string;
  count?: number;
  address?: string;
  actor?: { name: string; role: string; tenant: string; address: string };
}

const lines = (): Entry[] =>
  readFileSync(file, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

async function items<T>(path: string): Promise<T[]> {
  const { status, body } = await server.as("alice", "GET", path);
  expect(status).toBe(200);
  return (body as { items: T[] }).items;
}

const MALLORY = { name: "mallory", role: "admin", tenant: "default", address: "127.0.0.1" };

test("an admin who changes and deletes another's deployment is known", async () => {
  const spec = { name: "audited", command: SLEEPER };
  const { body } = await server.as("alice", "POST", "/api/v1/deployments", spec);
  const { id } = body as { id: string };
  await server.as("mallory", "PATCH", "/api/v1/deployments/audited", { enabled: false });
  await server.as("mallory", "DELETE", "/api/v1/deployments/audited");
  const events = await items<{ details: { actor?: object } }>(`/api/v1/events?subject=${id}`);
  expect(events[0]?.details.actor).toEqual(MALLORY);
  expect(events.map(({ details }) => (details.actor as { name?: string })?.name)).toEqual([
    "mallory",
    "mallory",
    "alice",
  ]);
  const entries = await items<Entry>(`/api/v1/audit?subject=${id}`);
  expect(entries.map(({ action, actor }) => [action, actor?.name])).toEqual([
    ["deployment.delete", "mallory"],
    ["deployment.update", "mallory"],
    ["deployment.create", "alice"],
  ]);
  const written = () => lines().filter(({ subject }) => subject === id).length === 3;
  await until(written, { what: "three lines in the file" });
});

test("an admin who says that a restart was forwarded cannot keep it out of the events", async () => {
  unit = await startUnit({
    name: "unit",
    urls: [server.url],
    env: { HOST_TOKEN: server.secretOf("nodes") },
  });
  await server.as("alice", "POST", "/api/v1/deployments", { name: "quiet", command: SLEEPER });
  const running = async () => {
    const { body } = await server.as("alice", "GET", "/api/v1/deployments/quiet");
    return (body as { status: { state: string }[] }).status.some(
      ({ state }) => state === "running",
    );
  };
  await until(running, { what: "the deployment to run" });
  const headers = {
    authorization: `Bearer ${server.secretOf("mallory")}`,
    "content-type": "application/json",
    "x-tenure-forwarded": "i-000000000000",
    "x-tenure-actor": encodeURIComponent(JSON.stringify({ ...MALLORY, name: "alice" })),
  };
  const restart = { method: "POST", headers, body: "{}" };
  const { status } = await server.get("/api/v1/deployments/quiet/restart", restart);
  expect(status).toBe(200);
  const told = await items<{ details: { actor?: object } }>(
    "/api/v1/events?event=deployment.restarted",
  );
  expect(told.map(({ details }) => details.actor)).toEqual([MALLORY]);
  const entries = await items<Entry>("/api/v1/audit?action=deployment.restart");
  expect(entries.map(({ actor }) => actor)).toEqual([MALLORY]);
});

/** The status of a sign-in, sent from this address of the loopback. */
function signInFrom(localAddress: string, token: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", origin: server.url };
    const asked = request(`${server.url}/api/v1/login`, { method: "POST", headers, localAddress });
    asked.on("response", (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    asked.on("error", reject);
    asked.end(JSON.stringify({ token }));
  });
}

test("guesses of a token are slowed and counted, cost no row, and lock out no other address", async () => {
  const entriesBefore = await items<Entry>("/api/v1/audit?limit=500");
  const statuses: number[] = [];
  for (let guess = 0; guess < 300; guess++)
    statuses.push(await signInFrom("127.0.0.2", `a-guess-of-a-token-${guess}`));
  const looked = statuses.filter((status) => status === 401).length;
  expect(looked).toBeGreaterThanOrEqual(10);
  // Ten at once and one every six seconds; the others are not even compared.
  expect(statuses.filter((status) => status === 429).length).toBeGreaterThan(200);
  expect(await signInFrom("127.0.0.3", server.secretOf("alice"))).toBe(200);

  const metrics = String((await server.as("looker", "GET", "/metrics")).body);
  expect(metrics).toContain(`tenure_sign_ins_total{result="failed"} ${looked}`);
  expect(metrics).toMatch(/tenure_sign_ins_total\{result="slowed"\} [1-9]\d\d/);
  const entriesAfter = await items<Entry>("/api/v1/audit?limit=500");
  expect(entriesAfter.length - entriesBefore.length).toBe(1);
  expect(entriesAfter[0]).toMatchObject({
    action: "console.sign-in",
    actor: { name: "alice", address: "127.0.0.3" },
  });
});

test("hundreds of refusals are a few lines that say how many there were, and no row", async () => {
  const before = (await items<Entry>("/api/v1/audit?limit=500")).length;
  for (let n = 0; n < 200; n++) {
    expect((await server.as("looker", "POST", "/api/v1/membership/release", {})).status).toBe(403);
    expect((await server.as(undefined, "GET", "/api/v1/deployments")).status).toBe(401);
  }
  expect((await items<Entry>("/api/v1/audit?limit=500")).length).toBe(before);
  // What has no line yet gets one at a stop.
  await unit?.stop();
  unit = undefined;
  await server.stop();
  const refused = lines().filter(({ action }) => action === "refused");
  const ofLooker = refused.filter(({ token }) => token === "looker");
  const ofStranger = refused.filter(({ token, address }) => !token && address === "127.0.0.1");
  const sum = (entries: Entry[]) => entries.reduce((all, { count = 0 }) => all + count, 0);
  expect(sum(ofLooker)).toBe(200);
  expect(sum(ofStranger)).toBe(200);
  // One at once, one at the stop, and one for each minute that a slow machine took.
  expect(ofLooker.length + ofStranger.length).toBeLessThan(20);
  expect(sum(refused.filter(({ address }) => address === "127.0.0.2"))).toBe(300);
});
