import { deploymentsOf } from "@tenure/testing/fleet/deployments";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import { rawUnit } from "./raw-unit.ts";
import type { AttackedServer } from "./scene.ts";

const SELECTOR = { "token/zone": "vault" };
const SLEEPS = "sleep 1000";

let server: AttackedServer;
let vault: RunningUnit | undefined;
beforeAll(async () => {
  server = await attackServerOnPostgres([
    { name: "admin", role: "admin" },
    { name: "node", role: "node" },
    { name: "vault", role: "node", scope: { labels: { zone: "vault" } } },
    { name: "gpu", role: "node", scope: { pools: ["gpu"] } },
    { name: "both", role: "node", scope: { pools: ["gpu"], node_unit: true } },
  ]);
});
afterAll(async () => {
  await vault?.stop();
  await server.stop();
});

test("a node that says the labels itself gets nothing of what a token's label selects", async () => {
  const admin = deploymentsOf(server.url, server.secretOf("admin"));
  const secret = { env: { STRIPE_KEY: "sk_live_attacked" }, command: SLEEPS, selector: SELECTOR };
  const daemon = await admin.create({ name: "pay-daemon", type: "daemon", ...secret });
  const pay = await admin.create({ name: "pay", ...secret });

  const evil = await rawUnit(server, "node", {
    labels: { zone: "vault", "Token/zone": "vault" },
    ...{ custom_command: true, token_labels: true },
  });
  const seen = await evil.call("deployment.list", {});
  expect(JSON.stringify(seen)).not.toContain("sk_live_attacked");
  const claim = evil.call("deployment.claim", { candidates: [{ id: pay.id, generation: 0 }] });
  await expect(claim).rejects.toThrow("CONFLICT");
  expect(await admin.why(daemon.id)).toContain("no node-unit that is present may run it");

  const thief = await rawUnit(server, "node", { labels: SELECTOR, custom_command: true })
    .then(({ call }) => call("deployment.list", {}))
    .then((stolen) => JSON.stringify(stolen))
    .catch(String);
  expect(thief).toMatch(/^Error: FORBIDDEN: .*token\/zone/);

  const old = await rawUnit(server, "vault", { custom_command: true });
  expect(JSON.stringify(await old.call("deployment.list", {}))).not.toContain("sk_live_attacked");
  await old.raw.close();

  // The labels count everywhere for the agent whose token has them.
  vault = await startUnit({
    ...{ name: "vault", urls: [server.url] },
    env: { HOST_TOKEN: server.secretOf("vault"), NODE_UNIT_LABELS: "zone=a" },
  });
  for (const { id } of [daemon, pay])
    await until(
      async () => (await admin.read(id)).status.some(({ state }) => state === "running"),
      {
        what: "the vault's node to run it",
      },
    );
  const { body } = await server.as("admin", "GET", `/api/v1/nodes/${vault.address}`);
  expect(body).toMatchObject({ labels: { zone: "a", "token/zone": "vault" } });
  await evil.raw.close();
});

test("a token for pools admits no node-unit, unless it says so", async () => {
  await expect(rawUnit(server, "gpu")).rejects.toThrow(
    "FORBIDDEN: this token does not allow being",
  );
  const worker = await rawUnit(server, "gpu", { tags: {}, pools: ["gpu"] });
  const both = await rawUnit(server, "both", { pools: ["gpu"] });
  await Promise.all([worker, both].map(({ raw }) => raw.close()));
});
