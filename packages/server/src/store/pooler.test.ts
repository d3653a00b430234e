import { randomUUID } from "node:crypto";
import { createDatabase } from "@tenure/testing/stores/database";
import { type PgBouncerOptions, startPgBouncer } from "@tenure/testing/stores/pgbouncer";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { openApp } from "../../testing/apps.ts";
import { isPooled } from "./pooler.ts";
import { openPostgres } from "./postgres.ts";
import { sql } from "./sql.ts";

// A real PgBouncer with its own defaults before a real Postgres.

let postgres: PostgresServer;
beforeAll(async () => {
  postgres = await startPostgres();
});
afterAll(() => postgres.discard());

async function bouncerUri(options: Omit<PgBouncerOptions, "postgres">): Promise<string> {
  const bouncer = await startPgBouncer({ postgres, ...options });
  onTestFinished(() => bouncer.discard());
  const database = await createDatabase(postgres.uri());
  return bouncer.uri(database.name);
}

describe.each(["session", "transaction"] as const)("PgBouncer with pool_mode = %s", (mode) => {
  test("an instance starts and works, with fewer server connections than its own", async () => {
    const uri = await bouncerUri({
      mode,
      settings: { default_pool_size: mode === "session" ? "60" : "4" },
    });
    const app = await openApp(uri, { TENURE_NONCE_MODE: "worker_queue" });
    const allocate = (signer: string) =>
      app.ask("POST", `/api/v1/signers/${signer}/nonces`, { request_id: randomUUID() });
    const answers = await Promise.all(Array.from({ length: 200 }, (_, k) => allocate(`s${k % 8}`)));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(new Set(answers.map(({ body }) => `${body.signer} ${body.nonce}`)).size).toBe(200);
    const deployment = { name: "web", package_name: "web", package_version: "1.0.0" };
    expect((await app.ask("POST", "/api/v1/deployments", deployment)).status).toBe(201);
    expect((await app.ask("GET", "/health/ready")).body).toMatchObject({
      ...{ status: "ready", nonces: { timeline: { state: "confirmed" } } },
    });
    await app.stop();
  });

  test("every statement has its limits, and names nothing that the next client would find", async () => {
    const uri = await bouncerUri({ mode });
    expect(await isPooled(uri)).toBe(true);
    const db = openPostgres({ uri, isPooled: true, statementTimeoutMs: 1_234 });
    const read = sql`select current_setting('statement_timeout') as limit, current_setting('jit') as jit`;
    const other = openPostgres({ uri, isPooled: true });
    for (const _ of [1, 2, 3]) {
      expect((await db.query(read)).rows).toEqual([{ limit: "1234ms", jit: "off" }]);
      expect((await other.query(read)).rows).toEqual([{ limit: "5s", jit: "off" }]);
    }
    await expect(db.query(sql`select pg_sleep(3)`)).rejects.toMatchObject({
      code: "DEPENDENCY_DOWN",
    });
    await Promise.all([db.close(), other.close()]);
  });

  test(`LISTEN ${mode === "session" ? "is heard" : "is found to be dead, once"}`, async () => {
    const uri = await bouncerUri({ mode });
    const seen = { heard: 0, deaf: 0 };
    const db = openPostgres({ uri, isPooled: true, onDeaf: () => seen.deaf++ });
    for (const channel of ["one", "two"]) await db.listen(channel, () => seen.heard++);
    const before = seen.heard;
    await db.query(sql`select pg_notify('two', '')`);
    if (mode === "session") await until(() => seen.heard > before, { what: "the notification" });
    expect(seen).toEqual(
      mode === "session" ? { heard: expect.any(Number), deaf: 0 } : { heard: 0, deaf: 1 },
    );
    await db.close();
  });
});

test("a PgBouncer that is told to ignore the settings is found too, a Postgres without a pooler is not", async () => {
  const ignored = "statement_timeout, lock_timeout, idle_in_transaction_session_timeout, options";
  const uri = await bouncerUri({
    mode: "session",
    settings: { ignore_startup_parameters: ignored },
  });
  expect(await isPooled(uri)).toBe(true);
  expect(await isPooled(postgres.uri())).toBe(false);
});

test("pool_mode = statement is refused in one sentence at the start", async () => {
  const uri = await bouncerUri({ mode: "transaction", settings: { pool_mode: "statement" } });
  await expect(openApp(uri)).rejects.toThrow(
    /the pooler before Postgres allows no transactions .*: set pool_mode to transaction or session/,
  );
});
