import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { TenureError } from "@tenure/protocol";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { expect, onTestFinished, test, vi } from "vitest";
import type { PostgresStore } from "../db.ts";
import { sql } from "../sql.ts";
import { openPglite, type PgliteOptions } from "./pglite.ts";

// On a busy machine the making of a database may take many times its four seconds.
vi.setConfig({ testTimeout: 90_000 });

// What only the embedded store has: a directory that is one process's, a thread, and no time limits of its own.

// One database for all of it, opened again and again: to make one takes seconds.
const dataDir = scratchDirectory("embedded");

test("a first start that was killed half way is done again", async () => {
  const unfinished = join(dataDir, "postgres.unfinished");
  mkdirSync(unfinished);
  writeFileSync(join(unfinished, "PG_VERSION"), "half a databa");
  const db = await open();
  await db.script("create table kept (n int); insert into kept values (1)");
  expect(existsSync(unfinished)).toBe(false);
});

test("a second opener is refused, and the first loses nothing", async () => {
  const first = await open();
  await expect(openPglite({ dataDir })).rejects.toThrow(
    `the data directory ${dataDir} is in use by another server (pid ${process.pid}); give each its own`,
  );
  await first.query(sql`insert into kept values (2)`);
  await first.close();
  const second = await open();
  expect(await second.query(sql`select n from kept order by n`)).toMatchObject({
    rows: [{ n: 1 }, { n: 2 }],
  });
});

test("a statement that takes too long is given up by its caller; those after it get their own answers", async () => {
  const db = await open({ statementTimeoutMs: 100 });
  const slow = db.query(sql`select count(*) from generate_series(1, 3000000)`);
  await expect(slow).rejects.toMatchObject({
    code: "DEPENDENCY_DOWN",
    details: { dependency: "embedded postgres", reason: "no answer within 100 ms" },
  });
  const answers = () => db.query(sql`select 'mine' as word`).then(({ rows }) => rows);
  const rows = await until(answers, { deadlineMs: 60_000, what: "the thread to be free again" });
  expect(rows).toEqual([{ word: "mine" }]);
});

test("after the close every statement is told that the store is gone", async () => {
  const db = await open();
  await db.close();
  await expect(db.query(sql`select 1`)).rejects.toBeInstanceOf(TenureError);
});

async function open(options: Partial<PgliteOptions> = {}): Promise<PostgresStore> {
  const db = await openPglite({ dataDir, ...options });
  onTestFinished(() => db.close().catch(() => {}));
  return db;
}
