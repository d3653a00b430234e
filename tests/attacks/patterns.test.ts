import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import { rawUnit } from "./raw-unit.ts";
import type { AttackedServer } from "./scene.ts";

const DAEMONS = 200;
/** A backtracking engine needs 2^40 steps to give up the first half; the second half matches. */
const ENDLESS = (n: number) => `(?:a+)+${n}|a+-\\d+@1\\.0\\.0`;

let server: AttackedServer;
beforeAll(async () => {
  server = await attackServerOnPostgres([
    { name: "admin", role: "admin" },
    { name: "node", role: "node" },
  ]);
});
afterAll(async () => {
  await server.stop();
});

test("a node's pattern does not block the server, however many daemons there are", {
  timeout: 240_000,
}, async () => {
  for (let n = 0; n < DAEMONS; n++) {
    const spec = {
      ...{ name: `d${n}`, type: "daemon", env: { MARK: "yes" } },
      ...{ package_name: `${"a".repeat(40)}-${n}`, package_version: "1.0.0" },
    };
    expect((await server.as("admin", "POST", "/api/v1/deployments", spec)).status).toBe(201);
  }
  const startedMs = performance.now();
  for (let n = 0; n < 10; n++) {
    const node = await rawUnit(server, "node", { trusted_package_regexp: ENDLESS(n) });
    const { items } = await node.call("deployment.list", {});
    console.log(`list ${n} after ${Math.round(performance.now() - startedMs)} ms`);
    // A match that was given up would leave `env` out.
    expect(items.filter(({ env }) => env !== undefined)).toHaveLength(DAEMONS);
    await node.raw.close();
  }
});

test("a pattern that cannot be read trusts nothing, and why says so", async () => {
  const spec = { name: "web", package_name: "web", package_version: "1.0.0" };
  await server.as("admin", "POST", "/api/v1/deployments", spec);
  const trusted_package_regexp = "(?:.?){999}(?:.?){999}";
  const node = await rawUnit(server, "node", { trusted_package_regexp });
  const why = async () => (await server.as("admin", "GET", "/api/v1/deployments/web/why")).body;
  const isPresent = async () => !JSON.stringify(await why()).includes("no_node_units");
  await until(isPresent, { what: "the node-unit to be a member" });
  expect(await why()).toMatchObject({
    answer: expect.stringContaining("trusts no package: its TRUSTED_PACKAGE_REGEXP must have"),
    reasons: [{ code: "no_node_fits" }, { code: "pattern_unreadable" }],
  });
  await node.raw.close();
});
