import { withDatabase } from "@tenure/testing/fleet/deployments";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openApp, openAppDatabase, type TestApp } from "../../testing/apps.ts";

let database: TestDatabase;
let app: TestApp;
beforeAll(async () => {
  database = await openAppDatabase();
  app = await openApp(database.uri);
});
afterAll(async () => {
  await app.stop();
  await database.drop();
});

const run = (text: string) => withDatabase(database.uri, (db) => db.query(text));

test("an instance that cannot read the members is not ready, and says so", async () => {
  const ready = async () => (await app.ask("GET", "/health/ready")).status === 200;
  await until(ready, { what: "the instance to be ready" });
  await run("alter view node_unit_now rename to node_unit_away");
  const refused = await until(
    async () => {
      const { status, body } = await app.ask("GET", "/health/ready");
      return status === 503 && body;
    },
    { what: "readiness to fail" },
  );
  expect(refused.dependencies).toContainEqual(
    expect.objectContaining({
      name: "members",
      ok: false,
      reason: expect.stringMatching(/node_unit/),
    }),
  );
  expect(refused.dependencies).toContainEqual(
    expect.objectContaining({ name: "postgres", ok: true }),
  );
  await run("alter view node_unit_away rename to node_unit_now");
  await until(ready, { what: "the instance to be ready again" });
});
