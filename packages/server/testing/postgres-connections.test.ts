import { randomUUID } from "node:crypto";
import { withDatabase } from "@tenure/testing/fleet/deployments";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { until } from "@tenure/testing/until";
import type pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openApp, openAppDatabase, type TestApp } from "./apps.ts";

let database: TestDatabase;
let app: TestApp;
beforeAll(async () => {
  database = await openAppDatabase();
  app = await openApp(database.uri, { TENURE_SERVER_POSTGRES_CONNECTIONS_MAX: "5" });
});
afterAll(async () => {
  await app.stop();
  await database.drop();
});

test("an instance under load keeps within its connections, and listens on one", async () => {
  await withDatabase(database.uri, async (db) => {
    // The server starts without waiting for it.
    await until(async () => (await countConnections(db)).listener === 1, { what: "the listener" });
  });
  const create = () => app.ask("POST", "/api/v1/deployments", { command: "true" });
  const allocate = (k: number) =>
    app.ask("POST", `/api/v1/signers/s${k}/nonces`, { request_id: randomUUID() });
  const asked = Array.from({ length: 40 }, (_, k) => [create(), allocate(k)]).flat();
  const counted = withDatabase(database.uri, async (db) => {
    const seen: Awaited<ReturnType<typeof countConnections>>[] = [];
    let open = true;
    void Promise.all(asked).then(() => {
      open = false;
    });
    while (open) {
      seen.push(await countConnections(db));
    }
    return seen;
  });
  expect((await Promise.all(asked)).map(({ status }) => status)).toEqual(
    Array.from({ length: 40 }, () => [201, 200]).flat(),
  );
  const seen = await counted;
  expect(Math.max(...seen.map(({ pool }) => pool))).toBe(4);
  expect(new Set(seen.map(({ listener }) => listener))).toEqual(new Set([1]));
});

async function countConnections(db: pg.Client): Promise<{ pool: number; listener: number }> {
  const { rows } = await db.query(`
    select count(*) filter (where application_name = 'tenure')::int as pool,
           count(*) filter (where application_name = 'tenure listener')::int as listener
      from pg_stat_activity where datname = current_database()`);
  return rows[0];
}
