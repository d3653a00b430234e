import { randomUUID } from "node:crypto";
import { connectRawNode } from "@tenure/testing/fleet/raw-node";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { openApp, type TestApp } from "../../testing/apps.ts";
import {
  DATABASES,
  type DatabaseKind,
  openServer,
  openTestDb,
  type TestDb,
} from "../../testing/databases.ts";
import { addDeployment, joinUnit } from "../../testing/deployments.ts";
import { systemClock } from "../kernel/clock.ts";
import { silentLog } from "../kernel/log.ts";
import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";
import { createMembers, type MembersRefresh } from "./members.ts";
import {
  forgetNodeUnits,
  leaveNodeUnit,
  removeNodeUnit,
  retireLostUnits,
} from "./store/node-unit-store.ts";

const DAY_MS = 86_400_000;
const DAYS = 30;

/** Node-units that left `days` ago, as many machines with a new key each leave behind. */
async function addDead(db: Db, count: number, days = 20): Promise<void> {
  await db.query(sql`
    insert into node_unit (address, name, instance_id, boot_id, epoch, online, presence_expires_at, left_at, joined_at)
    select 'dead-' || lpad(n::text, 6, '0'), 'dead ' || n, 'a', gen_random_uuid(), nextval('connection_epoch'), false,
           tenure_now() - ${days} * interval '1 day', tenure_now() - ${days} * interval '1 day',
           tenure_now() - ${days} * interval '1 day'
      from generate_series(1, ${count}) as n`);
}

describe.each(DATABASES)("node-units that are gone for long: %s", (kind: DatabaseKind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  afterAll(() => store.close());
  beforeEach(() =>
    store.db.script("delete from deployment; delete from node_unit; delete from event"),
  );

  const left = async (address: string) => {
    const term = await joinUnit(store.db, address);
    await leaveNodeUnit(store.db, term);
  };
  const addresses = async () => {
    const { rows } = await store.db.query<{ address: string }>(
      sql`select address from node_unit order by address`,
    );
    return rows.map(({ address }) => address);
  };

  test("are forgotten after the days set, unless something names them", async () => {
    for (const address of ["free", "drains", "owns", "owns-disabled", "target"])
      await left(address);
    await joinUnit(store.db, "ran-out");
    await store.db.query(sql`update node_unit set draining = true where address = 'drains'`);
    await addDeployment(store.db, { address: "owns" });
    await addDeployment(store.db, { address: "owns-disabled", enabled: false });
    const moving = await addDeployment(store.db, { address: "elsewhere" });
    await store.db.query(sql`update deployment set moving_to = 'target' where id = ${moving.id}`);
    await store.advance((DAYS - 1) * DAY_MS);
    expect(await forgetNodeUnits(store.db, DAYS)).toBe(0);
    await store.advance(2 * DAY_MS);
    await joinUnit(store.db, "here");
    expect(await forgetNodeUnits(store.db, DAYS)).toBe(2);
    expect(await addresses()).toEqual(["drains", "here", "owns", "owns-disabled", "target"]);
  });

  test("are removed at once by hand under the same conditions", async () => {
    await left("free");
    await joinUnit(store.db, "here");
    await left("owns-disabled");
    await addDeployment(store.db, { address: "owns-disabled", enabled: false });
    expect(await removeNodeUnit(store.db, "here")).toBe(false);
    expect(await removeNodeUnit(store.db, "owns-disabled")).toBe(false);
    expect(await removeNodeUnit(store.db, "unknown")).toBe(false);
    expect(await removeNodeUnit(store.db, "free")).toBe(true);
    expect(await addresses()).toEqual(["here", "owns-disabled"]);
    const { rows } = await store.db.query(
      sql`select subject from event where event = 'node.removed'`,
    );
    expect(rows).toEqual([{ subject: "free" }]);
  });

  test("that never said goodbye are offline after an hour, lost when their presence ran out", async () => {
    await joinUnit(store.db, "silent");
    await store.advance(DAY_MS);
    await retireLostUnits(store.db);
    const { rows } = await store.db.query(
      sql`select online, left_at = presence_expires_at as at_expiry from node_unit`,
    );
    expect(rows).toEqual([{ online: false, at_expiry: true }]);
  });

  test("are not read by the regular look, however many they are", async () => {
    await addDead(store.db, 10_000);
    const here = await joinUnit(store.db, "here");
    await joinUnit(store.db, "leaves");
    let rowsRead = 0;
    const refreshes: MembersRefresh[] = [];
    const members = createMembers({
      db: {
        ...store.db,
        async query(statement) {
          const result = await store.db.query(statement);
          rowsRead += result.rows.length;
          return result as never;
        },
      },
      presenceTtlMs: 45_000,
      refreshIntervalMs: 3_600_000,
      brakeEnabled: true,
      clock: systemClock,
      log: silentLog,
      onRefresh: (refresh) => refreshes.push(refresh),
    });
    members.start();
    await members.refresh();
    const { rows } = await store.db.query<{ epoch: number }>(
      sql`select epoch from node_unit where address = 'leaves'`,
    );
    await leaveNodeUnit(store.db, { address: "leaves", epoch: rows[0]!.epoch });
    await members.refresh();
    await until(() => refreshes.some(({ changes }) => changes.some((change) => !change.new)), {
      what: "the look that sees the leave",
    });
    await members.stop();
    const seen = refreshes.find(({ changes }) => changes.some((change) => !change.new))!;
    expect(seen.rows.map(({ address, present }) => [address, present])).toEqual([
      ["here", true],
      ["leaves", false],
    ]);
    expect(rowsRead).toBeLessThan(20 * refreshes.length);
    await leaveNodeUnit(store.db, here);
  });
});

describe("a fleet with ten thousand node-units that are gone", () => {
  let database: Awaited<ReturnType<typeof openServer>>;
  let app: TestApp;
  beforeAll(async () => {
    database = await openServer();
    await addDead(database.db, 10_000);
    app = await openApp(database.uri);
  });
  afterAll(async () => {
    await app.stop();
    await database.close();
  });
  const nodes = (query: string) => app.ask("GET", `/api/v1/nodes${query}`);

  test("lists them in pages, with the node-units and workers that are there", async () => {
    const unit = await connectRawNode({ url: app.url });
    await unit.register({ name: "unit" });
    const worker = await connectRawNode({ url: app.url });
    await worker.register({ name: "worker", tags: {}, pools: ["p"], capacity: 1 });
    const found: string[] = [];
    let cursor: string | null = "";
    let pages = 0;
    while (cursor !== null) {
      const { body } = await nodes(`?limit=500${cursor && `&cursor=${cursor}`}`);
      found.push(...body.items.map(({ node_id }: { node_id: string }) => node_id));
      cursor = body.next_cursor;
      pages += 1;
    }
    expect(pages).toBe(21);
    expect(new Set(found).size).toBe(10_002);
    expect(found).toEqual([...found].sort());
    const names = async (query: string) =>
      (await nodes(query)).body.items.map(({ name }: { name: string }) => name).sort();
    expect(await names("?online=true")).toEqual(["unit", "worker"]);
    expect(await names("?node_unit=false")).toEqual(["worker"]);
    expect(await names("?online=true&node_unit=true")).toEqual(["unit"]);
    expect(await names("?online=false&limit=2")).toEqual(["dead 1", "dead 2"]);
    expect((await app.ask("GET", "/api/v1/stats")).body.nodes).toMatchObject({
      online: 2,
      away: 10_000,
    });
    expect((await nodes("/dead%20777")).body).toMatchObject({ name: "dead 777", online: false });
    await unit.close();
    await worker.close();
  });

  test("removes one by its route: 409 while it is online or owns, 204, then 404", async () => {
    const unit = await connectRawNode({ url: app.url });
    await unit.register({ name: "scrapped" });
    const remove = () => app.ask("DELETE", "/api/v1/nodes/scrapped");
    expect(await remove()).toMatchObject({
      status: 409,
      body: { error: { code: "CONFLICT", message: expect.stringMatching(/online/) } },
    });
    const { address } = unit.key;
    const row = await addDeployment(database.db, { address, name: randomUUID(), enabled: false });
    await unit.close();
    await until(async () => (await nodes("/scrapped")).body.online === false, {
      what: "its leave",
    });
    expect(await remove()).toMatchObject({
      status: 409,
      body: { error: { message: expect.stringMatching(/owns a deployment/) } },
    });
    expect((await app.ask("GET", `/api/v1/deployments/${row.id}/why`)).body.answer).toBe(
      "it is disabled",
    );
    await database.db.query(sql`delete from deployment`);
    expect((await remove()).status).toBe(204);
    expect((await remove()).status).toBe(404);
  });
});
