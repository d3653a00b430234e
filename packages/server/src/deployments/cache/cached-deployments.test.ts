import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { openServer } from "../../../testing/databases.ts";
import { addDeployment, assign } from "../../../testing/deployments.ts";
import { systemClock } from "../../kernel/clock.ts";
import { silentLog } from "../../kernel/log.ts";
import { openPostgres } from "../../store/postgres.ts";
import { sql } from "../../store/sql.ts";
import { deleteDeployment } from "../store/deployment-store.ts";
import { type CacheRefresh, createCachedDeployments } from "./cached-deployments.ts";

async function open(clock = systemClock) {
  const server = await openServer();
  const refreshes: CacheRefresh[] = [];
  const cached = createCachedDeployments({
    db: server.db,
    clock,
    log: silentLog,
    onRefresh: async (refresh) => void refreshes.push(refresh),
  });
  cached.start();
  await cached.refresh();
  return {
    ...{ db: server.db, uri: server.uri, cached, refreshes },
    ids: () => [...cached.cache.rows()].map(({ id }) => id).sort(),
    async close() {
      await cached.stop();
      await server.close();
    },
  };
}

test("a transaction that began early and commits late is not missed", async () => {
  const { db, uri, cached, ids, close } = await open();
  const slow = openPostgres({ uri, poolMax: 1 });
  let commit = () => {};
  const gate = new Promise<void>((resolve) => {
    commit = resolve;
  });
  let early = "";
  const committing = slow.transaction(async (tx) => {
    early = (await addDeployment(tx)).id;
    await gate;
  });
  await until(() => early, { what: "the early write" });
  const late = await addDeployment(db);
  await cached.refresh();
  await cached.refresh();
  expect(ids()).toEqual([late.id]);
  commit();
  await committing;
  await until(() => ids().length === 2, { what: "the early write to be seen" });
  await slow.close();
  await close();
});

test("a caller that refreshes sees earlier writes, and only changes are reported", async () => {
  const { db, cached, ids, refreshes, close } = await open();
  const rows = [];
  for (let n = 0; n < 3; n++) rows.push(await addDeployment(db));
  await cached.refresh();
  expect(ids()).toHaveLength(3);
  refreshes.length = 0;
  await assign(db, rows[1]!.id, "n");
  await deleteDeployment(db, rows[2]!.id);
  await cached.refresh();
  const changes = refreshes.flatMap((refresh) => refresh.changes);
  expect(changes.map(({ before, after }) => [before?.address, after?.address])).toEqual(
    expect.arrayContaining([
      ["", "n"],
      ["", undefined],
    ]),
  );
  expect(changes).toHaveLength(2);
  await close();
});

test("a change by another instance refreshes the cache at once", async () => {
  // Its own refreshes are an hour apart.
  const { db, ids, close } = await open({
    ...systemClock,
    sleep: (_, signal) => systemClock.sleep(3_600_000, signal),
  });
  const row = await addDeployment(db);
  await until(() => ids().includes(row.id), { what: "the row" });
  await close();
});

test("the nodes that refuse a deployment are known after a change and after the first read", async () => {
  const { db, cached, close } = await open();
  const { id } = await addDeployment(db, { address: "n" });
  const report = (address: string, state: string) =>
    db.query(sql`insert into deployment_status (deployment_id, address, state, generation)
      values (${id}, ${address}, ${state}, 1)
      on conflict (deployment_id, address) do update set state = excluded.state`);
  const refusedBy = async () => {
    await cached.refresh();
    return [...(cached.refused().get(id) ?? [])].sort();
  };
  await report("former", "refused");
  await report("n", "running");
  expect(await refusedBy()).toEqual(["former"]);
  await report("n", "refused");
  expect(await refusedBy()).toEqual(["former", "n"]);
  const later = createCachedDeployments({
    ...{ db, clock: systemClock, log: silentLog, onRefresh: async () => {} },
  });
  later.start();
  await later.refresh();
  expect([...later.refused().get(id)!].sort()).toEqual(["former", "n"]);
  await later.stop();
  await report("n", "running");
  await report("former", "stopped");
  expect(await refusedBy()).toEqual([]);
  expect(cached.refused().size).toBe(0);
  await deleteDeployment(db, id);
  await close();
});
