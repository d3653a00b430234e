import { existsSync } from "node:fs";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { descendantsOf, isFrozen } from "../processes/proc.ts";
import { type PostgresServer, startPostgres } from "./postgres.ts";

describe("a private Postgres", () => {
  let postgres: PostgresServer;
  beforeAll(async () => {
    postgres = await startPostgres({ settings: { deadlock_timeout: "250ms" } });
    await query("create table kept (what text)");
  });
  afterAll(() => postgres.discard());

  test("Postgres is durable and takes settings", async () => {
    expect(await query("show fsync")).toEqual([{ fsync: "on" }]);
    expect(await query("show synchronous_commit")).toEqual([{ synchronous_commit: "on" }]);
    expect(await query("show deadlock_timeout")).toEqual([{ deadlock_timeout: "250ms" }]);
  });

  test("Postgres keeps its data and port over a stop and a crash", async () => {
    await query("insert into kept values ('before the stop')");
    const { pid } = postgres;
    await postgres.stop();
    await expect(query("select 1")).rejects.toThrow("ECONNREFUSED");
    await postgres.start();
    expect(postgres.pid).not.toBe(pid);

    await query("insert into kept values ('before the crash')");
    await postgres.kill("immediate");
    await postgres.start();

    const expected = [{ what: "before the stop" }, { what: "before the crash" }];
    expect(await query("select what from kept")).toEqual(expected);
  });

  test("falls silent with all its children while frozen, and answers when thawed", async () => {
    const client = await connect();
    await postgres.freeze();
    expect(descendantsOf(postgres.pid).length).toBeGreaterThan(1);
    expect(descendantsOf(postgres.pid).every(isFrozen)).toBe(true);
    const events: string[] = [];
    const asked = client.query("select 1").then(() => events.push("answered"));
    await expect(query("select 1", 500)).rejects.toThrow("timeout");
    events.push("thawed");
    await postgres.thaw();
    await asked;
    expect(events).toEqual(["thawed", "answered"]);
    await client.end();
  });

  test("Postgres can be stopped while frozen", async () => {
    await postgres.freeze();
    await postgres.stop();
    expect(existsSync(`/proc/${postgres.pid}`)).toBe(false);
    await postgres.start();
  });

  async function connect(connectionTimeoutMillis = 30_000): Promise<Client> {
    const client = new Client({ connectionString: postgres.uri(), connectionTimeoutMillis });
    client.on("error", () => {});
    await client.connect();
    return client;
  }

  async function query(text: string, connectWithinMs?: number): Promise<unknown[]> {
    const client = await connect(connectWithinMs);
    const { rows } = await client.query(text);
    await client.end();
    return rows;
  }
});
