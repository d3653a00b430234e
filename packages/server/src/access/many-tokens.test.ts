import { setTimeout as wait } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../testing/databases.ts";
import { tokenSha256 } from "../config.ts";
import { systemClock } from "../kernel/clock.ts";
import { silentLog } from "../kernel/log.ts";
import type { PostgresStore } from "../store/db.ts";
import { sql } from "../store/sql.ts";
import { createTableTokens, type TableTokens } from "./table-tokens.ts";
import { listTokens } from "./token-store.ts";

// What ten thousand tokens cost, and what callers with secrets that do not exist can cause.

const COUNT = 10_000;
const secretOf = (at: number) => `tnr_${String(at).padStart(43, "0")}`;
const unknownOf = (at: number) => `tnr_x${String(at).padStart(42, "0")}`;
const present = (secret: string) => ({ secret, sha256: tokenSha256(secret) });

describe.each(DATABASES)("many tokens, on %s", (kind) => {
  let testDb: TestDb;
  let tokens: TableTokens;
  let statements: number;
  let changes: number;
  afterEach(async () => {
    await tokens.stop();
    await testDb.close();
  });

  async function open(count: number): Promise<void> {
    testDb = await openTestDb(kind);
    const { db } = testDb;
    await db.query(sql`
      insert into token (id, name, role, sha256)
      select gen_random_uuid(), 'n' || at, 'viewer',
             encode(sha256(convert_to('tnr_' || lpad(at::text, 43, '0'), 'UTF8')), 'hex')
        from generate_series(1, ${count}) as at`);
    statements = 0;
    changes = 0;
    const counting = new Proxy(db, {
      get(target, name) {
        const member = Reflect.get(target, name);
        if (name !== "query") return typeof member === "function" ? member.bind(target) : member;
        return (statement: Parameters<PostgresStore["query"]>[0]) => {
          statements += 1;
          return target.query(statement);
        };
      },
    });
    tokens = createTableTokens({
      ...{ db: counting, clock: systemClock, log: silentLog, offlineMs: 60_000 },
      principalOf: (rule) => rule,
      onChange: () => {
        changes += 1;
      },
    });
    await tokens.open();
    tokens.start();
  }

  test("ten thousand: one is read when one changes, and none when none does", {
    timeout: 240_000,
  }, async () => {
    const beganMs = performance.now();
    await open(COUNT);
    const openedMs = performance.now() - beganMs;
    expect(tokens.rules()).toHaveLength(COUNT);
    expect(await tokens.find(present(secretOf(COUNT)))).toMatchObject({ name: `n${COUNT}` });
    const { db } = testDb;
    const changedMs = performance.now();
    await db.query(sql`update token set revoked_at = tenure_now() where name = 'n7'`);
    while (tokens.current!(tokenSha256(secretOf(7)))) await wait(5);
    const followedMs = performance.now() - changedMs;
    const plan = await db.query<{ "QUERY PLAN": string }>(
      sql`explain select to_jsonb(token) from token where version > 1`,
    );
    expect(JSON.stringify(plan.rows)).toContain("token_version");
    const listMs = performance.now();
    const page = await listTokens(db, {
      ...{ tenant: "default", name: undefined, live: true, fromId: undefined, limit: 51 },
    });
    expect(page).toHaveLength(51);
    process.stdout.write(
      `tokens, ${kind}: ${COUNT} made and read in ${Math.round(openedMs)} ms, a revocation followed in ${Math.round(followedMs)} ms, a page listed in ${Math.round(performance.now() - listMs)} ms\n`,
    );
  });

  test("unknown secrets share a few reads, and push no token out", {
    timeout: 240_000,
  }, async () => {
    await open(10);
    await wait(1_200);
    const idle = statements;
    const beganMs = performance.now();
    for (let round = 0; round < 10; round++) {
      const presented = Array.from({ length: 500 }, (_, at) =>
        present(unknownOf(500 * round + at)),
      );
      const found = await Promise.all(presented.map((one) => tokens.find(one)));
      expect(found.filter((one) => one !== undefined)).toEqual([]);
    }
    const seconds = (performance.now() - beganMs) / 1_000;
    // Five reads a second for them, and one a second that polls.
    expect(statements - idle).toBeLessThan(8 * seconds + 4);
    process.stdout.write(
      `tokens, ${kind}: 5000 unknown secrets in ${seconds.toFixed(1)} s caused ${statements - idle} statements\n`,
    );
    const before = statements;
    for (let at = 1; at <= 10; at++)
      expect(await tokens.find(present(secretOf(at)))).toMatchObject({ name: `n${at}` });
    // Secrets of another form cause none.
    for (let at = 0; at < 1_000; at++)
      expect(await tokens.find(present(`guess-${at}`))).toBeUndefined();
    expect(statements - before).toBeLessThan(4);
    expect(changes).toBeLessThan(10);
  });
});
