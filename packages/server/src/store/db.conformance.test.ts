import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../testing/databases.ts";
import { json, sql } from "./sql.ts";

// What every Postgres must do for us, whichever it is. Races need several sessions and mean nothing on the
// embedded one, which has one: they are in postgres.test.ts.
describe.each(DATABASES)("Postgres conformance: %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
    await store.db.script(
      "create table thing (id int primary key, n bigint not null default 0, note jsonb)",
    );
  });
  afterAll(() => store.close());

  test("says what it is and what an acknowledged write survives", () => {
    expect(store.db.kind).toBe(kind);
    expect(store.db.durability).toMatch(/acknowledged/);
  });

  test("values arrive as they were sent, never as SQL", async () => {
    const note = { text: "'); drop table thing; --", list: [1, "two", null] };
    await store.db.query(sql`insert into thing (id, note) values (${1}, ${json(note)})`);
    const { rows } = await store.db.query<{ note: unknown }>(
      sql`select note from thing where id = ${1}`,
    );
    expect(rows).toEqual([{ note }]);
  });

  test("int8 is a number, timestamptz a Date, an array an array", async () => {
    const { rows } = await store.db.query(sql`
      select ${2 ** 53 - 1}::bigint as big, 'epoch'::timestamptz as at, ${["a", "b"]}::text[] as words`);
    expect(rows).toEqual([{ big: 2 ** 53 - 1, at: new Date(0), words: ["a", "b"] }]);
  });

  test("a timestamptz that no Date can hold is the first or the last moment there is", async () => {
    const { rows } = await store.db.query(sql`
      select '-infinity'::timestamptz as a, '0044-03-15 BC'::timestamptz as b, 'infinity'::timestamptz as c,
             '294276-12-31'::timestamptz as d, '2026-11-17 22:24:00.123456+05:30'::timestamptz as e`);
    const [first, last] = ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"];
    expect(JSON.parse(JSON.stringify(rows))).toEqual([
      { a: first, b: first, c: last, d: last, e: "2026-11-17T16:54:00.123Z" },
    ]);
  });

  test("an int8 beyond 2^53-1 is refused, never rounded", async () => {
    await expect(store.db.query(sql`select 9007199254740993::bigint as big`)).rejects.toThrow(
      /beyond/,
    );
    await expect(store.db.query(sql`select 1 as one`)).resolves.toMatchObject({
      rows: [{ one: 1 }],
    });
  });

  test("rowCount counts the rows a statement changed", async () => {
    await store.db.query(sql`insert into thing (id) values (10), (11), (12)`);
    expect(await store.db.query(sql`update thing set n = n + 1 where id >= 10`)).toMatchObject({
      rowCount: 3,
    });
    expect(await store.db.query(sql`update thing set n = 9 where id = -1`)).toMatchObject({
      rowCount: 0,
    });
  });

  test("an error keeps its SQLSTATE and the session goes on", async () => {
    await store.db.query(sql`insert into thing (id) values (20)`);
    const again = store.db.query(sql`insert into thing (id) values (20)`);
    await expect(again).rejects.toMatchObject({ code: "23505" });
    await expect(store.db.query(sql`select 1 as one`)).resolves.toMatchObject({
      rows: [{ one: 1 }],
    });
  });

  test("a transaction is all or nothing", async () => {
    const failed = store.db.transaction(async (tx) => {
      await tx.query(sql`insert into thing (id) values (30)`);
      throw new Error("changed my mind");
    });
    await expect(failed).rejects.toThrow("changed my mind");
    await store.db.transaction(async (tx) => {
      await tx.query(sql`insert into thing (id) values (31)`);
    });
    const { rows } = await store.db.query(sql`select id from thing where id in (30, 31)`);
    expect(rows).toEqual([{ id: 31 }]);
  });

  test("nobody sees the inside of somebody else's transaction", async () => {
    let seen: Promise<unknown> = Promise.resolve();
    await store.db.transaction(async (tx) => {
      await tx.query(sql`insert into thing (id) values (40)`);
      seen = store.db
        .query(sql`select count(*)::int as seen from thing where id = 40`)
        .then(({ rows }) => rows);
      // Real time on purpose: the outside query gets every chance to run before this transaction ends.
      await wait(100);
      await tx.query(sql`delete from thing where id = 40`);
    });
    expect(await seen).toEqual([{ seen: 0 }]);
  });

  test("tenure_now() moves when a test moves it, also within a transaction", async () => {
    const now = () => store.db.query<{ now: Date }>(sql`select tenure_now() as now`);
    const before = (await now()).rows[0]!.now.getTime();
    await store.advance(60_000);
    expect((await now()).rows[0]!.now.getTime()).toBeGreaterThanOrEqual(before + 60_000);
  });
});
