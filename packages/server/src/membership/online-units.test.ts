import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../testing/databases.ts";
import { joinUnit } from "../../testing/deployments.ts";
import { sql } from "../store/sql.ts";
import { OnlineUnits } from "./online-units.ts";
import { leaveNodeUnit, renewPresence, setDraining } from "./store/node-unit-store.ts";

const TTL_MS = 45_000;

describe.each(DATABASES)("a look at the node-units that are online: %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());
  beforeEach(() => store.db.script("delete from node_unit; delete from instance"));

  /** Looks through a database that counts the rows it answers with. */
  function scene() {
    let answered = 0;
    const units = new OnlineUnits(
      {
        ...store.db,
        async query(statement) {
          const result = await store.db.query(statement);
          answered += result.rows.length;
          return result as never;
        },
      },
      TTL_MS,
    );
    return {
      units,
      async look() {
        answered = 0;
        const rows = await units.read();
        const seen = rows.map(({ address, present }) => `${address} ${present ? "here" : "away"}`);
        return { rows, seen, answered };
      },
    };
  }

  const add = (count: number, { online }: { online: boolean }) =>
    store.db.query(sql`
      insert into node_unit (address, name, instance_id, boot_id, epoch, online, presence_expires_at, left_at, joined_at)
      select ${online ? "here-" : "dead-"} || lpad(n::text, 6, '0'), 'n' || n, 'a', gen_random_uuid(),
             nextval('connection_epoch'), ${online}, tenure_now() + ${TTL_MS} * interval '1 ms',
             case when ${online} then null else tenure_now() end, tenure_now()
        from generate_series(1, ${count}) as n`);

  test("is one row while nothing changes, however many are online, renewed or dead", async () => {
    const online = kind === "postgres" ? 3_000 : 300; // in WebAssembly each row takes a millisecond to insert
    await add(online, { online: true });
    await add(3 * online, { online: false });
    const { look } = scene();
    const first = await look();
    expect(first.answered).toBe(online);
    const { rows: terms } = await store.db.query<{ address: string; epoch: number }>(
      sql`select address, epoch from node_unit where online`,
    );
    await renewPresence(store.db, terms, TTL_MS);
    const idle = await look();
    expect(idle.answered).toBe(1);
    expect(idle.rows).toBe(first.rows);
    await store.db.query(
      sql`update node_unit set draining = true where address in ('here-000007', 'dead-000007')`,
    );
    const changed = await look();
    expect(changed.answered).toBe(2);
    expect(changed.rows[6]).toMatchObject({ address: "here-000007", draining: true });
    expect(changed.rows.filter((row, index) => row !== first.rows[index])).toHaveLength(1);
  });

  test("sees who joined, changed, left and was deleted, also by SQL, and says once who left", async () => {
    const { look } = scene();
    expect((await look()).seen).toEqual([]);
    const b = await joinUnit(store.db, "b");
    await joinUnit(store.db, "c");
    await joinUnit(store.db, "a");
    expect((await look()).seen).toEqual(["a here", "b here", "c here"]);
    await setDraining(store.db, "c", true);
    await leaveNodeUnit(store.db, b);
    await store.db.script("delete from node_unit where address = 'a'");
    const { rows, seen } = await look();
    expect(seen).toEqual(["c here", "b away"]);
    expect(rows).toMatchObject([{ draining: true }, { online: false, left_at: expect.any(Date) }]);
    expect((await look()).seen).toEqual(["c here"]);
    await joinUnit(store.db, "b");
    expect((await look()).seen).toEqual(["b here", "c here"]);
  });

  test("sees a presence that ran out and one that was renewed after it, which write nothing that a trigger sees", async () => {
    const silent = await joinUnit(store.db, "silent");
    const other = await joinUnit(store.db, "other");
    const { look, units } = scene();
    await look();
    await store.advance(31_000);
    await renewPresence(store.db, [other], TTL_MS);
    await look();
    expect([...units.silent]).toEqual(["silent"]);
    await store.advance(20_000);
    expect((await look()).seen).toEqual(["other here", "silent away"]);
    expect([...units.silent]).toEqual(["other"]);
    expect((await look()).answered).toBe(1);
    await renewPresence(store.db, [silent, other], TTL_MS);
    expect((await look()).seen).toEqual(["other here", "silent here"]);
    expect([...units.silent]).toEqual([]);
  });

  test("reads a row with an epoch that only SQL can write each time", async () => {
    await joinUnit(store.db, "n");
    const { look } = scene();
    await look();
    await store.db.script("update node_unit set epoch = 9223372036854775807");
    expect((await look()).rows).toMatchObject([{ epoch: 9_007_199_254_740_991, name: "n" }]);
    await store.db.script("update node_unit set name = 'renamed'");
    expect((await look()).rows).toMatchObject([{ name: "renamed" }]);
    await store.db.script("delete from node_unit");
    expect((await look()).seen).toEqual([]);
  });

  test("compares every column but those of renewals", async () => {
    await joinUnit(store.db, "n");
    const { look } = scene();
    await look();
    const { rows: columns } = await store.db.query<{ column: string; type: string }>(sql`
      select column_name as column, data_type as type from information_schema.columns
       where table_name = 'node_unit_now' order by ordinal_position`);
    const unseen: string[] = [];
    for (const { column, type } of columns) {
      if (column === "lost_at" || column === "online" || column === "address") continue;
      const set = column === "tenants" ? "tenants = '{x}', tenants_epoch = epoch" : null;
      const value = type === "boolean" ? `not ${column}` : VALUES[type];
      await store.db.script(`update node_unit set ${set ?? `${column} = ${value}`}`);
      if ((await look()).answered === 1) unseen.push(column);
    }
    // The last is false in every row that is online: a trigger sees to it.
    expect(unseen).toEqual(["presence_expires_at", "renewed_at", "left_silently"]);
  });
});

const VALUES: Record<string, string> = {
  text: "'other'",
  uuid: "gen_random_uuid()",
  bigint: "12345",
  jsonb: `'{"other": "x"}'`,
  "timestamp with time zone": "tenure_now() + interval '1 minute'",
};
