import { randomUUID } from "node:crypto";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openServer } from "../../testing/databases.ts";
import { startTestApp } from "../../testing/test-app.ts";
import type { App } from "../app.ts";
import { leaveNodeUnit } from "../membership/store/node-unit-store.ts";
import { sql } from "../store/sql.ts";

// Two instances over one Postgres. The database's clock nearly stands still: no presence runs out by itself.
let database: Awaited<ReturnType<typeof openServer>>;
let a: App;
let b: App;
beforeAll(async () => {
  database = await openServer();
  [a, b] = await Promise.all([
    startTestApp({ postgresUri: database.uri }),
    startTestApp({ postgresUri: database.uri }),
  ]);
});
afterAll(async () => {
  await Promise.all([a.stop(), b.stop()]);
  await database.close();
});

/** The next process of the same node, from the same data directory. */
async function successor(of: RawNode, url: string, former_boot_id: string | undefined = of.bootId) {
  const next = await connectRawNode({ url, key: of.key, bootId: randomUUID() });
  const startedMs = performance.now();
  const answered = await Promise.race([
    next.register({ former_boot_id }).then(() => "joined" as const),
    next.closed.then(({ code }) => code),
  ]);
  return { next, answered, tookMs: performance.now() - startedMs };
}

const joined = async (url: string): Promise<RawNode> => {
  const node = await connectRawNode({ url });
  await node.register();
  return node;
};

test("a restarted node whose instance stopped with it takes its address over at once", async () => {
  const c = await startTestApp({ postgresUri: database.uri });
  const node = await joined(c.url);
  await c.stop();
  await node.closed;
  expect((await successor(node, a.url, randomUUID())).answered).toBe(4409);
  const { next, answered, tookMs } = await successor(node, a.url);
  expect(answered).toBe("joined");
  expect(tookMs).toBeLessThan(5_000);
  await next.close();
});

test.each([
  "same",
  "other",
])("a copied data directory is refused while the original answers on the %s instance", async (where) => {
  const original = await joined(a.url);
  const { answered } = await successor(original, where === "same" ? a.url : b.url);
  expect(answered).toBe(4409);
  expect((await original.heartbeat(1)).presence_ok).toBe(true);
  await original.close();
});

test.each([
  "same",
  "other",
])("a former process that does not answer on the %s instance is replaced", async (where) => {
  const frozen = await joined(a.url);
  frozen.socket.pause(); // it reads nothing, so it answers no ping
  const { next, answered } = await successor(frozen, where === "same" ? a.url : b.url);
  expect(answered).toBe("joined");
  expect((await next.heartbeat(1)).presence_ok).toBe(true);
  frozen.socket.terminate();
  await next.close();
});

test("no address is taken over while a live instance does not answer", async () => {
  const c = await startTestApp({ postgresUri: database.uri });
  const node = await joined(c.url);
  await c.stop();
  await node.closed;
  await database.db.query(sql`
    insert into instance (instance_id, boot_id, url, version, expires_at)
    values ('of-release-0.1.0', gen_random_uuid(), 'http://127.0.0.1:1', '0.1.0', tenure_now() + interval '1 hour')`);
  expect((await successor(node, a.url)).answered).toBe(4409);
  await database.db.query(sql`delete from instance where instance_id = 'of-release-0.1.0'`);
  const { next, answered } = await successor(node, a.url);
  expect(answered).toBe("joined");
  await next.close();
});

test("after a silent loss every instance pings its node-units and records those that answer", async () => {
  const [lost, onA, onB, frozen] = [
    await joined(a.url),
    await joined(a.url),
    await joined(b.url),
    await joined(b.url),
  ];
  frozen.socket.pause();
  const { rows } = await database.db.query<{ epoch: number }>(
    sql`select epoch from node_unit where address = ${lost.key.address}`,
  );
  const term = { address: lost.key.address, epoch: rows[0]!.epoch };
  expect(await leaveNodeUnit(database.db, term, true)).toBe(true);
  const confirmed = async () => {
    const { rows } = await database.db.query<{ address: string }>(sql`
      select address from node_unit
       where online and renewed_at > (select left_at from node_unit where address = ${term.address})`);
    return rows.map(({ address }) => address);
  };
  const both = [onA.key.address, onB.key.address];
  await until(async () => (await confirmed()).length === 2, { what: "two that answer" });
  expect((await confirmed()).sort()).toEqual(both.sort());
  frozen.socket.terminate();
  await Promise.all([onA.close(), onB.close()]);
});
