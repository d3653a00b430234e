import { expect, test } from "vitest";
import { until } from "../../../tests/support/until.ts";
import { openServer } from "../testing/databases.ts";
import { createEventTail } from "./changes.ts";
import type { Change } from "./http/stream.ts";
import { systemClock } from "./kernel/clock.ts";
import { silentLog } from "./kernel/log.ts";
import { appendEvent } from "./store/event-store.ts";

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
