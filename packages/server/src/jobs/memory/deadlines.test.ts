import { until } from "@tenure/testing/until";
import { afterEach, expect, test } from "vitest";
import { systemClock } from "../../kernel/clock.ts";
import { createDeadlines, type Deadlines } from "./deadlines.ts";

let deadlines: Deadlines;
afterEach(() => deadlines.stop());

function open(): string[] {
  const rung: string[] = [];
  const onError = (error: unknown) => rung.push(String(error));
  deadlines = createDeadlines({ clock: systemClock, onDue: (key) => rung.push(key), onError });
  deadlines.start();
  return rung;
}

test("rings in the order of time, whatever the order of setting", async () => {
  const rung = open();
  deadlines.set("last", 300);
  deadlines.set("first", 30);
  deadlines.set("second", 150);
  await until(() => rung.length === 3, { what: "three alarms" });
  expect(rung).toEqual(["first", "second", "last"]);
  expect(deadlines.size()).toBe(0);
});

test("one that is cleared is silent, and one that is set again rings once", async () => {
  const rung = open();
  deadlines.set("cleared", 20);
  deadlines.clear("cleared");
  deadlines.set("moved", 20);
  deadlines.set("moved", 60);
  deadlines.set("after", 200);
  await until(() => rung.includes("after"), { what: "the last alarm" });
  expect(rung).toEqual(["moved", "after"]);
});

test("an earlier one wakes whoever sleeps for a later one", async () => {
  const rung = open();
  deadlines.set("in an hour", 3_600_000);
  await new Promise((resolve) => setImmediate(resolve));
  deadlines.set("soon", 20);
  await until(() => rung.length > 0, { what: "the earlier alarm" });
  expect(rung).toEqual(["soon"]);
});

test("200,000 deadlines far apart are kept, and the one that is due rings", async () => {
  const rung = open();
  for (let at = 1; at <= 200_000; at++) deadlines.set(`later ${at}`, 60_000 + at * 20);
  deadlines.set("soon", 20);
  await until(() => rung.length > 0, { what: "an alarm" });
  expect(rung).toEqual(["soon"]);
  expect(deadlines.size()).toBe(200_000);
});
