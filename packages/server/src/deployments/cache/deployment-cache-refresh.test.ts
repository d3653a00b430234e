import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { openServer } from "../../../testing/databases.ts";
import { addDeployment, assign } from "../../../testing/deployments.ts";
import { systemClock } from "../../kernel/clock.ts";
import { silentLog } from "../../kernel/log.ts";
import { openPostgres } from "../../store/postgres.ts";
import { deleteDeployment } from "../store/deployment-store.ts";
import { type CopyLook, createDeploymentCopy } from "./deployment-cache-refresh.ts";

async function open(clock = systemClock) {
  const server = await openServer();
  const looks: CopyLook[] = [];
  const copy = createDeploymentCopy({
    db: server.db,
    clock,
    log: silentLog,
    onLook: async (look) => void looks.push(look),
  });
  copy.start();
  await copy.refresh();
  return {
    ...{ db: server.db, uri: server.uri, copy, looks },
    ids: () => [...copy.log.rows()].map(({ id }) => id).sort(),
    async close() {
      await copy.stop();
      await server.close();
    },
  };
}

test("a transaction that began early and commits late is not missed", async () => {
  const { db, uri, copy, ids, close } = await open();
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
  await copy.refresh();
  await copy.refresh();
  expect(ids()).toEqual([late.id]);
  commit();
  await committing;
  await until(() => ids().length === 2, { what: "the early write to be seen" });
  await slow.close();
  await close();
});

test("what is written is seen by whoever refreshes, and only what changed is told", async () => {
  const { db, copy, ids, looks, close } = await open();
  const rows = [];
  for (let n = 0; n < 3; n++) rows.push(await addDeployment(db));
  await copy.refresh();
  expect(ids()).toHaveLength(3);
  looks.length = 0;
  await assign(db, rows[1]!.id, "n");
  await deleteDeployment(db, rows[2]!.id);
  await copy.refresh();
  const told = looks.flatMap(({ changes }) => changes);
  expect(told.map(({ before, after }) => [before?.address, after?.address])).toEqual(
    expect.arrayContaining([
      ["", "n"],
      ["", undefined],
    ]),
  );
  expect(told).toHaveLength(2);
  await close();
});

test("a change made elsewhere wakes the copy at once", async () => {
  // Its own looks are an hour apart.
  const { db, ids, close } = await open({
    ...systemClock,
    sleep: (_, signal) => systemClock.sleep(3_600_000, signal),
  });
  const row = await addDeployment(db);
  await until(() => ids().includes(row.id), { what: "the row" });
  await close();
});
