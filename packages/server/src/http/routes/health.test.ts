import { until } from "@tenure/testing/until";
import { expect, onTestFinished, test } from "vitest";
import { openApp, openAppDatabase } from "../../../testing/apps.ts";
import { openPostgres } from "../../store/postgres.ts";

test("an instance whose Postgres takes no write is not ready and shows the reason to operators", async () => {
  const database = await openAppDatabase();
  onTestFinished(() => database.drop());
  const app = await openApp(database.uri, { TENURE_TOKENS: "admin:rule-of-the-fleet" });
  onTestFinished(() => app.stop());
  const admin = openPostgres({ uri: database.uri, poolMax: 1 });
  onTestFinished(() => admin.close());
  const name = new URL(database.uri).pathname.slice(1);
  const authorization = "Bearer rule-of-the-fleet";
  const ready = () => app.ask("GET", "/health/ready", undefined, { authorization });
  expect(await ready()).toMatchObject({ status: 200 });

  // What a former primary looks like after a failover: it answers, and every transaction is read only.
  await admin.script(`alter database ${name} set default_transaction_read_only = on`);
  await disconnectOthers(name);
  const postgres = async () =>
    (await ready()).body.dependencies.find(({ name }: { name: string }) => name === "postgres");
  // The first check after it may fail because its connection was ended, which is no answer to the question.
  const refused = async () => /read-only/.test((await postgres()).reason ?? "");
  await until(refused, { what: "the write of readiness to fail" });
  expect(await ready()).toMatchObject({ status: 503 });
  // A driver's words may name hosts and users: not to those who have no token.
  const toStranger = await app.ask("GET", "/health/ready");
  expect(toStranger).toMatchObject({ status: 503, body: { status: "not_ready" } });
  expect(toStranger.body.dependencies).toContainEqual({
    name: "postgres",
    kind: "postgres",
    ok: false,
  });
  expect(JSON.stringify(toStranger.body)).not.toContain("read-only");

  await admin.script(`set default_transaction_read_only = off`);
  await admin.script(`alter database ${name} reset default_transaction_read_only`);
  await disconnectOthers(name);
  await until(async () => (await ready()).status === 200, { what: "to be ready again" });

  /** Settings of a database count for new connections. */
  async function disconnectOthers(database: string): Promise<void> {
    await admin.script(`
      select pg_terminate_backend(pid) from pg_stat_activity
       where datname = '${database}' and pid <> pg_backend_pid()`);
  }
});
