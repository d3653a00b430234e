import { createHash } from "node:crypto";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../testing/databases.ts";
import type { Db } from "./db.ts";
import { type Migration, migrate, readMigrations } from "./migrate.ts";
import { openPostgres } from "./postgres.ts";
import { sql } from "./sql.ts";

test("the migrations of this version are numbered from 1 without a gap", () => {
  const ids = readMigrations().map(({ id }) => id);
  expect(ids).toEqual(ids.map((_, index) => index + 1));
});

// Far above the real ones: the database of a test has those already.
const bakery = migration(9_001, "bakery", "create table oven (id int primary key);");
const bread = migration(9_002, "bread", "create table loaf (oven int references oven);");

describe.each(DATABASES)("migrating %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());

  test("runs what is missing, in order, and the next time nothing", async () => {
    expect(await migrate(store.db, [bakery, bread])).toEqual(["bakery", "bread"]);
    expect(await migrate(store.db, [bakery, bread])).toEqual([]);
    expect(await appliedNames(store.db)).toEqual(expect.arrayContaining(["bakery", "bread"]));
  });

  test("refuses a database that has another text under a number, and changes nothing", async () => {
    const changed = migration(9_002, "bread", "create table bun (oven int);");
    const cake = migration(9_003, "cake", "create table cake (id int);");
    await expect(migrate(store.db, [bakery, changed, cake])).rejects.toThrow(
      "migration 9002 (bread) was changed after this database applied it",
    );
    expect(await hasTable(store.db, "cake")).toBe(false);
  });

  test("accepts a database that a newer version has migrated further", async () => {
    expect(await migrate(store.db, [bakery])).toEqual([]);
  });

  test("a migration that fails leaves nothing behind, nor does what ran before it", async () => {
    const shelf = migration(9_010, "shelf", "create table shelf (id int);");
    const broken = migration(9_011, "broken", "create table half (id int); select 1 / 0;");
    await expect(migrate(store.db, [shelf, broken])).rejects.toMatchObject({ code: "22012" });
    expect(await hasTable(store.db, "shelf")).toBe(false);
    expect(await hasTable(store.db, "half")).toBe(false);
    expect(await appliedNames(store.db)).not.toContain("shelf");
    // Put right, it runs: the failure left no mark either.
    expect(await migrate(store.db, [shelf])).toEqual(["shelf"]);
  });
});

describe("several servers that start at once on one empty database", () => {
  let database: TestDatabase;
  beforeEach(async () => {
    database = await createDatabase(stores().postgresAdminUri);
  });
  afterEach(() => database.drop());

  test("all come up, and each migration ran once", async () => {
    const real = readMigrations();
    // The longer it takes, the surer the rivals meet.
    const slow = migration(9_020, "slow", "select pg_sleep(0.2); create table slow (id int);");
    const rivals = Array.from({ length: 6 }, () => openPostgres({ uri: database.uri, poolMax: 1 }));
    const ran = await Promise.all(rivals.map((rival) => migrate(rival, [...real, slow])));
    expect(ran.flat().toSorted()).toEqual([...real, slow].map(({ name }) => name).toSorted());
    await Promise.all(rivals.map((rival) => rival.close()));
  });
});

function migration(id: number, name: string, text: string): Migration {
  return { id, name, text, sha256: createHash("sha256").update(text).digest("hex") };
}

async function appliedNames(db: Db): Promise<string[]> {
  const { rows } = await db.query<{ name: string }>(
    sql`select name from tenure_migration order by id`,
  );
  return rows.map(({ name }) => name);
}

async function hasTable(db: Db, name: string): Promise<boolean> {
  const { rows } = await db.query<{ found: boolean }>(
    sql`select to_regclass(${name}) is not null as found`,
  );
  return rows[0]?.found === true;
}
