import { randomUUID } from "node:crypto";
import type { DeploymentReport } from "@tenure/protocol";
import { createDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../../testing/databases.ts";
import {
  addDeployment,
  assign,
  joinUnit,
  readDeployment,
  termOf,
} from "../../../testing/deployments.ts";
import { EVERYTHING } from "../../kernel/scope.ts";
import {
  leaveNodeUnit,
  renewPresence,
  setDraining,
} from "../../membership/store/node-unit-store.ts";
import { migrate, readMigrations } from "../../store/migrate.ts";
import { openPostgres } from "../../store/postgres.ts";
import { sql } from "../../store/sql.ts";
import { currentMark, deploymentsSince, removedSince } from "./change-store.ts";
import { claimFirstFree, reserveFirst } from "./claim-store.ts";
import {
  changeDeployment,
  createDeployment,
  deleteDeployment,
  findDeployments,
  listDeployments,
  rollBackDeployment,
} from "./deployment-store.ts";
import { dropDeadMoves, giveMoveBack, markMoveReady, markStopped } from "./move-store.ts";
import { forgetOldStatuses, listStatuses, recordReport } from "./status-store.ts";

const DAY_MS = 86_400_000;

test("R3, R4: the column type comes to a table with rows, and makes them deployments", async () => {
  const database = await createDatabase(stores().postgresAdminUri);
  const db = openPostgres({ uri: database.uri, poolMax: 1 });
  const all = readMigrations();
  const before = all.findIndex(({ name }) => name === "deployment_type");
  await migrate(db, all.slice(0, before));
  await db.script(`
    insert into deployment (package_name, address) values ('old', 'n');
    update deployment set package_version = '1.0.0'`);
  await migrate(db, all);
  await db.script("insert into deployment (package_name) values ('new')");
  const { rows } = await db.query(
    sql`select package_name, type, address from deployment order by package_name desc`,
  );
  expect(rows).toEqual([
    { package_name: "old", type: "deployment", address: "n" },
    { package_name: "new", type: "deployment", address: "" },
  ]);
  const { rows: columns } = await db.query(sql`
    select data_type, is_nullable from information_schema.columns
     where table_name = 'deployment' and column_name = 'type'`);
  expect(columns).toEqual([{ data_type: "text", is_nullable: "NO" }]);
  // A specification from before the column can still be brought back.
  const { rows: old } = await db.query<{ id: string }>(
    sql`select id from deployment where package_name = 'old'`,
  );
  expect(await rollBackDeployment(db, old[0]!.id, 1)).toMatchObject({
    package_version: "",
    type: "deployment",
  });
  await db.close();
  await database.drop();
});

describe.each(DATABASES)("deployments on %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
  });
  const find = async (id: string) => (await findDeployments(store.db, EVERYTHING, id))[0];
  afterAll(() => store.close());
  beforeEach(() => store.db.script("delete from deployment; delete from node_unit"));

  test("a row without a name gets its id as name, even if SQL inserts it", async () => {
    await store.db.script("insert into deployment (package_name) values ('x')");
    const [row] = await listDeployments(store.db, { scope: EVERYTHING, limit: 10 });
    expect(row!.name).toBe(row!.id);
    expect(await find(row!.name.toUpperCase())).toMatchObject({ id: row!.id });
  });

  test("a name is unique, and finds its row", async () => {
    const { id } = await addDeployment(store.db, { name: "web" });
    expect(await createDeployment(store.db, randomUUID(), { name: "web" })).toBeUndefined();
    expect(await find("web")).toMatchObject({ id });
    expect(await find("other")).toBeUndefined();
  });

  test("an id is never taken for the name of another row", async () => {
    const { id } = await addDeployment(store.db);
    const thief = await addDeployment(store.db);
    await changeDeployment(store.db, id, { name: "renamed", ifRevision: undefined });
    await changeDeployment(store.db, thief.id, { name: id, ifRevision: undefined });
    expect(await find(id)).toMatchObject({ name: "renamed" });
  });

  test("a change of the specification makes a new revision; a change of owner or enabled does not", async () => {
    const { id } = await addDeployment(store.db, { env: { A: "1" } });
    const change = (fields: object) =>
      changeDeployment(store.db, id, { ifRevision: undefined, ...fields });
    expect(await change({ package_version: "2.0.0" })).toMatchObject({
      revision: 2,
      env: { A: "1" },
    });
    expect(await change({ enabled: false })).toMatchObject({ revision: 2, enabled: false });
    expect(await change({ env: {} })).toMatchObject({ revision: 3, env: {} });
    expect(await assign(store.db, id, "x")).toMatchObject({ revision: 3 });
    expect(await change({ ifRevision: 2, command: "x" })).toBeUndefined();
    expect(await change({ ifRevision: 3, command: "x" })).toMatchObject({ revision: 4 });
  });

  test("a rollback stores the chosen specification as a new revision", async () => {
    const { id } = await addDeployment(store.db, { package_version: "1.0.0", env: { A: "1" } });
    for (const package_version of ["2.0.0", "3.0.0"])
      await changeDeployment(store.db, id, { package_version, env: {}, ifRevision: undefined });
    expect(await rollBackDeployment(store.db, id, 2)).toMatchObject({
      package_version: "2.0.0",
      revision: 4,
    });
    expect(await rollBackDeployment(store.db, id, 1)).toMatchObject({
      package_version: "1.0.0",
      env: { A: "1" },
      revision: 5,
    });
    expect(await rollBackDeployment(store.db, id, 99)).toBeUndefined();
  });

  test("a pin sets the owner and the selector; the owner stays when the pin is removed", async () => {
    const { id } = await addDeployment(store.db, { selector: { zone: "x" } });
    const pinned = await changeDeployment(store.db, id, { pin: "n", ifRevision: undefined });
    expect(pinned).toMatchObject({
      address: "n",
      generation: 1,
      selector: { zone: "x", address: "n" },
    });
    const free = await changeDeployment(store.db, id, { pin: null, ifRevision: undefined });
    expect(free).toMatchObject({ address: "n", generation: 1, selector: { zone: "x" } });
  });

  test("I3: a deployment that becomes a daemon loses its owner", async () => {
    const { id } = await addDeployment(store.db, { address: "n" });
    expect(
      await changeDeployment(store.db, id, { type: "daemon", ifRevision: undefined }),
    ).toMatchObject({ address: "", generation: 2 });
  });

  test("changes since a mark include removals", async () => {
    const before = await addDeployment(store.db);
    const mark = await currentMark(store.db);
    const after = await addDeployment(store.db);
    // Others on this server hold marks back: what is older may come again, what is newer is never missing.
    expect((await deploymentsSince(store.db, mark)).map(({ id }) => id)).toContain(after.id);
    await deleteDeployment(store.db, before.id);
    expect(await removedSince(store.db, mark)).toContain(before.id);
    const nothing = async () =>
      (await deploymentsSince(store.db, await currentMark(store.db))).length === 0;
    await until(nothing, { what: "the mark to pass what was written" });
  });

  describe("a report", () => {
    const say = (node: { address: string; epoch: number }, report: DeploymentReport) =>
      recordReport(store.db, node, report);

    test("a report of the current term is stored; an omitted field keeps its value until the next term", async () => {
      const node = await joinUnit(store.db, "n");
      const row = await addDeployment(store.db);
      await claimFirstFree(store.db, node, [termOf(row)]);
      const term = { deployment_id: row.id, generation: 1 };
      await say(node, { ...term, state: "running", pid: 7, restarts: 2, last_error: "once" });
      expect(await say(node, { ...term, state: "backoff", pid: null, exit_code: 1 })).toMatchObject(
        {
          current: true,
          former_state: "running",
        },
      );
      expect((await listStatuses(store.db, [row.id])).statuses).toMatchObject([
        { state: "backoff", pid: null, exit_code: 1, restarts: 2, last_error: "once" },
      ]);
      await assign(store.db, row.id, "");
      await claimFirstFree(store.db, node, [{ id: row.id, generation: 2 }]);
      await say(node, { ...term, generation: 3, state: "starting" });
      expect((await listStatuses(store.db, [row.id])).statuses).toMatchObject([
        { state: "starting", generation: 3, exit_code: null, restarts: 0, last_error: null },
      ]);
    });

    test("a report of another term, node or connection changes nothing", async () => {
      const node = await joinUnit(store.db, "n");
      const other = await joinUnit(store.db, "other");
      const row = await addDeployment(store.db, { address: "n" });
      const report = { deployment_id: row.id, generation: 1, state: "running" as const };
      expect(await say(node, { ...report, generation: 0 })).toMatchObject({ current: false });
      expect(await say(node, { ...report, generation: 2 })).toMatchObject({ current: false });
      expect(await say(other, report)).toMatchObject({ current: false });
      expect(await say({ ...node, epoch: node.epoch - 1 }, report)).toMatchObject({
        current: false,
      });
      expect(await say(node, { ...report, deployment_id: randomUUID() })).toBeUndefined();
      expect((await listStatuses(store.db, [row.id])).statuses).toEqual([]);
    });

    test("a daemon has a report of every node", async () => {
      const nodes = [await joinUnit(store.db, "a"), await joinUnit(store.db, "b")];
      const { id } = await addDeployment(store.db, { type: "daemon" });
      for (const node of nodes)
        await say(node, { deployment_id: id, generation: 0, state: "running" });
      const { statuses } = await listStatuses(store.db, [id]);
      expect(statuses.map(({ address }) => address).sort()).toEqual(["a", "b"]);
    });

    test("a report about a daemon stays while its node is present, and is deleted a week after the node left", async () => {
      const stays = await joinUnit(store.db, "stays");
      const leaves = await joinUnit(store.db, "leaves");
      const { id } = await addDeployment(store.db, { type: "daemon" });
      for (const node of [stays, leaves])
        await say(node, { deployment_id: id, generation: 0, state: "running" });
      const kept = async () =>
        (await listStatuses(store.db, [id])).statuses.map(({ address }) => address).sort();
      await store.advance(8 * DAY_MS);
      await renewPresence(store.db, [stays, leaves], 45_000);
      await leaveNodeUnit(store.db, leaves);
      await forgetOldStatuses(store.db);
      expect(await kept()).toEqual(["leaves", "stays"]);
      await store.advance(8 * DAY_MS);
      await renewPresence(store.db, [stays], 45_000);
      await forgetOldStatuses(store.db);
      expect(await kept()).toEqual(["stays"]);
    });

    test("a report of a former owner is deleted after a week, that of the owner stays", async () => {
      const [former, owner] = [await joinUnit(store.db, "former"), await joinUnit(store.db, "o")];
      const row = await addDeployment(store.db, { address: "former" });
      await say(former, { deployment_id: row.id, generation: 1, state: "running" });
      await assign(store.db, row.id, "o");
      await say(owner, { deployment_id: row.id, generation: 2, state: "running" });
      await store.advance(8 * DAY_MS);
      await forgetOldStatuses(store.db);
      expect((await listStatuses(store.db, [row.id])).statuses).toMatchObject([{ address: "o" }]);
    });
  });

  describe("a handing over", () => {
    const prepare = async () => {
      const owner = await joinUnit(store.db, "owner");
      const next = await joinUnit(store.db, "next");
      const rows = [
        await addDeployment(store.db, { address: "owner" }),
        await addDeployment(store.db, { address: "owner" }),
      ];
      await setDraining(store.db, "owner", true);
      return { owner, next, rows, row: rows[0]! };
    };
    const move = (row: { id: string; generation: number }, address: string) => ({
      id: row.id,
      generation: row.generation,
      address,
    });

    test("a move goes step by step, and only the claim of the next node changes the owner", async () => {
      const { owner, next, row } = await prepare();
      const reserved = await reserveFirst(store.db, next, [termOf(row)]);
      expect(reserved).toEqual({ outcome: "claimed", claim: termOf(row) });
      expect(await claimFirstFree(store.db, next, [termOf(row)])).toEqual({ outcome: "conflict" });
      expect(await markStopped(store.db, move(row, owner.address))).toBe(false);
      expect(await markMoveReady(store.db, move(row, "somebody"))).toBe(false);
      expect(await markMoveReady(store.db, move(row, next.address))).toBe(true);
      expect(await claimFirstFree(store.db, next, [termOf(row)])).toEqual({ outcome: "conflict" });
      expect(await markStopped(store.db, move(row, owner.address))).toBe(true);
      expect(await readDeployment(store.db, row.id)).toMatchObject({ address: "owner" });
      const third = await joinUnit(store.db, "third");
      expect(await claimFirstFree(store.db, third, [termOf(row)])).toEqual({ outcome: "conflict" });
      expect(await claimFirstFree(store.db, next, [termOf(row)])).toMatchObject({
        claim: { generation: row.generation + 1 },
      });
      expect(await readDeployment(store.db, row.id)).toMatchObject({
        address: "next",
        moving_to: "",
        move_state: "",
      });
    });

    test("one row of a draining owner moves at a time, and none of another owner", async () => {
      const { next, rows } = await prepare();
      await reserveFirst(store.db, next, rows.map(termOf));
      const other = await joinUnit(store.db, "other");
      expect(await reserveFirst(store.db, other, rows.map(termOf))).toEqual({
        outcome: "conflict",
      });
      const stays = await addDeployment(store.db, { address: "other" });
      expect(await reserveFirst(store.db, next, [termOf(stays)])).toEqual({ outcome: "conflict" });
    });

    test("I2: a node of policy none, or a draining one, cannot reserve a row", async () => {
      const { owner, row } = await prepare();
      const none = await joinUnit(store.db, "none", { claim_policy: "none" });
      expect(await reserveFirst(store.db, none, [termOf(row)])).toMatchObject({
        why: "policy_none",
      });
      expect(await reserveFirst(store.db, owner, [termOf(row)])).toMatchObject({ why: "draining" });
    });

    test.each([
      [
        "the next node left",
        ({ next }: { next: { address: string; epoch: number } }) => leaveNodeUnit(store.db, next),
      ],
      ["the next node drains", () => setDraining(store.db, "next", true)],
      ["the row is disabled", () => store.db.script("update deployment set enabled = false")],
      [
        "the next node never claims",
        () => store.db.script("update node_unit set claim_policy = 'none' where address = 'next'"),
      ],
      [
        "the next node does not fit any more",
        () => store.db.script(`update deployment set selector = '{"zone": "x"}'`),
      ],
      ["the drain ended", () => setDraining(store.db, "owner", false)],
      [
        "the install takes for ever",
        async ({ next }: { next: { address: string; epoch: number } }) => {
          await store.advance(601_000);
          await renewPresence(store.db, [next], 45_000);
        },
      ],
    ])("is dropped when %s", async (_, happens) => {
      const { next, row, owner } = await prepare();
      await reserveFirst(store.db, next, [termOf(row)]);
      expect(await dropDeadMoves(store.db)).toBe(0);
      await happens({ next });
      expect(await dropDeadMoves(store.db)).toBe(1);
      expect(await readDeployment(store.db, row.id)).toMatchObject({
        ...{ address: owner.address, generation: row.generation, moving_to: "", move_state: "" },
      });
    });

    test("a node that cannot run a row gives its move back", async () => {
      const { next, row } = await prepare();
      await reserveFirst(store.db, next, [termOf(row)]);
      expect(await giveMoveBack(store.db, move(row, "next"))).toBe(true);
      expect(await readDeployment(store.db, row.id)).toMatchObject({ moving_to: "" });
    });

    test("a move ends when the owner is lost: the row is released like any other", async () => {
      const { next, row } = await prepare();
      await reserveFirst(store.db, next, [termOf(row)]);
      expect(await assign(store.db, row.id, "")).toMatchObject({ moving_to: "", move_state: "" });
    });
  });
});
