import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type PgBouncer, startPgBouncer } from "./pgbouncer.ts";
import { type PostgresServer, startPostgres } from "./postgres.ts";

describe("a private PgBouncer", () => {
  let postgres: PostgresServer;
  const bouncers: PgBouncer[] = [];
  beforeAll(async () => {
    postgres = await startPostgres();
  });
  afterAll(async () => {
    for (const bouncer of bouncers) await bouncer.discard();
    await postgres.discard();
  });

  test.each([
    "session",
    "transaction",
  ] as const)("pools by %s: its clients survive a crash of Postgres only where it pools by transaction", async (mode) => {
    const bouncer = await startPgBouncer({ postgres, mode });
    bouncers.push(bouncer);
    const client = new Client({ connectionString: bouncer.uri() });
    let isEnded = false;
    client.on("end", () => {
      isEnded = true;
    });
    client.on("error", () => {});
    await client.connect();
    const { rows } = await client.query("select 1 as one");
    expect(rows).toEqual([{ one: 1 }]);
    await postgres.kill("immediate");
    await postgres.start();
    const again = await client.query("select 2 as two").catch(() => undefined);
    expect({ isEnded, rows: again?.rows }).toEqual(
      mode === "session"
        ? { isEnded: true, rows: undefined }
        : { isEnded: false, rows: [{ two: 2 }] },
    );
    await client.end().catch(() => {});
  });
});
