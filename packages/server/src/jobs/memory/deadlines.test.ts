import { until } from "@tenure/testing/until";
import { afterEach, expect, test } from "vitest";
import { systemClock } from "../../kernel/clock.ts";
import { createDeadlines, type Deadlines } from "./deadlines.ts";

let deadlines: Deadlines;
afterEach(() => deadlines.stop());

function open(): string[] {
  const fired: string[] = [];
  const onError = (error: unknown) => fired.push(String(error));
  deadlines = createDeadlines({ clock: systemClock, onDue: (key) => fired.push(key), onError });
  deadlines.start();
  return fired;
}

test("deadlines fire in the order of time, in any order of setting", async () => {
  const fired = open();
  deadlines.set("last", 300);
  deadlines.set("first", 30);
  deadlines.set("second", 150);
  await until(() => fired.length === 3, { what: "three alarms" });
  expect(fired).toEqual(["first", "second", "last"]);
  expect(deadlines.size()).toBe(0);
});

test("a cleared deadline does not fire, and one that is set again fires once", async () => {
  const fired = open();
  deadlines.set("cleared", 20);
  deadlines.clear("cleared");
  deadlines.set("moved", 20);
  deadlines.set("moved", 60);
  deadlines.set("after", 200);
  await until(() => fired.includes("after"), { what: "the last alarm" });
  expect(fired).toEqual(["moved", "after"]);
});

test("an earlier deadline fires in time while the timer waits for a later one", async () => {
  const fired = open();
  deadlines.set("in an hour", 3_600_000);
  await new Promise((resolve) => setImmediate(resolve));
  deadlines.set("soon", 20);
  await until(() => fired.length > 0, { what: "the earlier alarm" });
  expect(fired).toEqual(["soon"]);
});

test("200,000 deadlines far apart are kept, and the one that is due fires", async () => {
  const fired = open();
  for (let at = 1; at <= 200_000; at++) deadlines.set(`later ${at}`, 60_000 + at * 20);
  deadlines.set("soon", 20);
  await until(() => fired.length > 0, { what: "an alarm" });
  expect(fired).toEqual(["soon"]);
  expect(deadlines.size()).toBe(200_000);
});
