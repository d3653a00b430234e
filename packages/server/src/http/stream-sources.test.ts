import type { NodeView } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { openServer } from "../../testing/databases.ts";
import { systemClock } from "../kernel/clock.ts";
import { silentLog } from "../kernel/log.ts";
import { appendEvent, openEvents } from "../store/event-store.ts";
import type { Change } from "./routes/stream.ts";
import { createEventTail, createNodeDiff } from "./stream-sources.ts";

test("an event that commits after a later one is published too, and each is published once", async () => {
  const database = await openServer();
  const { db } = database;
  const append = (message: string) => appendEvent(db, { event: "test.appended", message });
  await append("before the tail started");
  const published: Change[] = [];
  const tail = createEventTail({
    events: openEvents(db),
    publish: (change) => published.push(change),
    clock: systemClock,
    log: silentLog,
  });
  tail.start();
  const messages = () => published.map(({ item }) => (item as { message: string }).message);
  const received = (message: string) =>
    until(
      async () => {
        if (messages().includes(message)) return true;
        await append(message); // repeated: the first may come before the tail has read the newest id
        return false;
      },
      { everyMs: 50, what: message },
    );
  await received("nudge for first");

  await db.transaction(async (tx) => {
    await appendEvent(tx, { event: "test.appended", message: "slow" }); // the smaller id, not committed yet
    await append("quick");
    await until(() => messages().includes("quick"), { what: "quick" });
  });
  await until(() => messages().includes("slow"), { what: "slow" });
  await received("nudge for last");
  expect(messages()).not.toContain("before the tail started");
  expect(new Set(published.map(({ id }) => id)).size).toBe(published.length);
  await tail.stop();
  await database.close();
});

test("a node-unit that leaves is one change and not removed; a worker that is not listed is removed", () => {
  const diff = createNodeDiff();
  const unit = (online: boolean) => ({ node_id: "unit", node_unit: true, online }) as NodeView;
  const worker = { node_id: "worker", node_unit: false, online: true } as NodeView;
  const ops = (nodes: NodeView[]) => diff(nodes).map(({ op, id }) => `${op} ${id}`);
  expect(ops([unit(true), worker])).toEqual(["changed unit", "changed worker"]);
  expect(ops([unit(false), worker])).toEqual(["changed unit"]);
  expect(ops([])).toEqual(["removed worker"]);
  expect(ops([unit(true)])).toEqual(["changed unit"]);
});

test("a node-unit that left between two reads of the members is away, not removed", () => {
  const diff = createNodeDiff();
  diff([{ node_id: "unit", node_unit: true, online: true, instance_id: "a" } as NodeView]);
  expect(diff([])).toMatchObject([
    { op: "changed", id: "unit", item: { online: false, instance_id: null } },
  ]);
  expect(diff([])).toEqual([]);
});
