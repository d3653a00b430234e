import type { NodeView } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { openServer } from "../../testing/databases.ts";
import { systemClock } from "../kernel/clock.ts";
import { silentLog } from "../kernel/log.ts";
import { appendEvent } from "../store/event-store.ts";
import type { Change } from "./routes/stream.ts";
import { createEventTail, createNodeDiff } from "./stream-sources.ts";

test("an event that commits after a later one is told too, and each is told once", async () => {
  const database = await openServer();
  const { db } = database;
  const tell = (message: string) => appendEvent(db, { event: "test.told", message });
  await tell("before anybody followed");
  const told: Change[] = [];
  const tail = createEventTail({
    db,
    publish: (change) => told.push(change),
    clock: systemClock,
    log: silentLog,
  });
  tail.start();
  const messages = () => told.map(({ item }) => (item as { message: string }).message);
  const hears = (message: string) =>
    until(
      async () => {
        if (messages().includes(message)) return true;
        await tell(message); // again and again: the first may come before anybody follows
        return false;
      },
      { everyMs: 50, what: message },
    );
  await hears("nudge for first");

  await db.transaction(async (tx) => {
    await appendEvent(tx, { event: "test.told", message: "slow" }); // the smaller id, not committed yet
    await tell("quick");
    await until(() => messages().includes("quick"), { what: "quick" });
  });
  await until(() => messages().includes("slow"), { what: "slow" });
  await hears("nudge for last");
  expect(messages()).not.toContain("before anybody followed");
  expect(new Set(told.map(({ id }) => id)).size).toBe(told.length);
  await tail.stop();
  await database.close();
});

test("a node that went away is a change once, and is not removed; a worker that is not listed is", () => {
  const diff = createNodeDiff();
  const unit = (online: boolean) => ({ node_id: "unit", node_unit: true, online }) as NodeView;
  const worker = { node_id: "worker", node_unit: false, online: true } as NodeView;
  const ops = (nodes: NodeView[]) => diff(nodes).map(({ op, id }) => `${op} ${id}`);
  expect(ops([unit(true), worker])).toEqual(["changed unit", "changed worker"]);
  expect(ops([unit(false), worker])).toEqual(["changed unit"]);
  expect(ops([])).toEqual(["removed worker"]);
  expect(ops([unit(true)])).toEqual(["changed unit"]);
});

test("a node-unit that left before the members were looked at is away, not removed", () => {
  const diff = createNodeDiff();
  diff([{ node_id: "unit", node_unit: true, online: true, instance_id: "a" } as NodeView]);
  expect(diff([])).toMatchObject([
    { op: "changed", id: "unit", item: { online: false, instance_id: null } },
  ]);
  expect(diff([])).toEqual([]);
});
