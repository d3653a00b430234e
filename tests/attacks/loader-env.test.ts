import { existsSync } from "node:fs";
import { join } from "node:path";
import { type DeploymentsOf, deploymentsOf } from "@tenure/testing/fleet/deployments";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { type FakeRegistry, startFakeRegistry } from "@tenure/testing/programs/fake-registry";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import type { AttackedServer } from "./scene.ts";

const PACKAGE = { package_name: "trusted-app", package_version: "1.0.0" };
const PROOF = join(scratchDirectory("loader-env"), "code-of-an-attacker-ran");
const CODE = `import { writeFileSync } from "node:fs"; writeFileSync(${JSON.stringify(PROOF)}, "");`;
const ATTACK = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(CODE)}` };

let server: AttackedServer;
let registry: FakeRegistry;
let locked: RunningUnit;
let admin: DeploymentsOf;
beforeAll(async () => {
  registry = await startFakeRegistry();
  registry.publish({
    ...{ name: "trusted-app", version: "1.0.0" },
    files: { "index.js": "setInterval(() => {}, 1000);" },
  });
  server = await attackServerOnPostgres([
    { name: "admin", role: "admin" },
    { name: "node", role: "node" },
  ]);
  admin = deploymentsOf(server.url, server.secretOf("admin"));
  locked = await startUnit({
    ...{ name: "locked", urls: [server.url] },
    env: {
      HOST_TOKEN: server.secretOf("node"),
      ENABLE_CUSTOM_COMMAND: "false",
      TRUSTED_PACKAGE_REGEXP: "trusted-app@1\\.0\\.0",
      NPM_CONFIG_REGISTRY: registry.url,
      npm_config_cache: scratchDirectory("npm-cache"),
    },
  });
});
afterAll(async () => {
  await locked?.stop();
  await server?.stop();
  await registry?.close();
});

/** Until the node says that it refuses this one. If it runs it instead, the attacker's code has run. */
async function untilRefused(id: string): Promise<void> {
  const said = await until(
    async () => {
      const { status } = await admin.read(id);
      return status.find(({ state }) => state === "refused" || state === "running");
    },
    { what: "the node to run it or to refuse it" },
  );
  expect([said.state, existsSync(PROOF)]).toEqual(["refused", false]);
  expect(said.last_error).toContain("env sets NODE_OPTIONS");
  const why = await server.as("admin", "GET", `/api/v1/deployments/${id}/why`);
  expect(JSON.stringify(why.body)).toContain("env must not set NODE_OPTIONS");
}

test("env loads no other code on a node that allows no custom command", async () => {
  const ordinary = { PORT: "8080", NODE_ENV: "production" };
  const owned = await admin.create({ name: "owned", env: ordinary, ...PACKAGE });
  const daemon = await admin.create({ name: "daemon", type: "daemon", env: ATTACK, ...PACKAGE });
  await untilRefused(daemon.id);
  await until(async () => (await admin.read(owned.id)).status.some((s) => s.state === "running"), {
    what: "a deployment with ordinary variables to run",
  });
  await admin.change(owned.id, { env: { ...ordinary, ...ATTACK } });
  await until(
    async () =>
      (await admin.read(owned.id)).status.some((s) => s.state !== "running") || existsSync(PROOF),
    { what: "the changed deployment to stop" },
  );
  await untilRefused(owned.id);
});
