import { expect, test } from "vitest";
import { atEndOfTick } from "./tick.ts";

test("all batches of a tick run before its sends, also a batch scheduled by a batch", async () => {
  const done: string[] = [];
  atEndOfTick("send", () => done.push("sent"));
  atEndOfTick("batch", () => {
    done.push("batch");
    atEndOfTick("batch", () => done.push("second batch"));
  });
  const afterwards = new Promise((resolve) => setImmediate(resolve));
  expect(done).toEqual([]);
  await afterwards;
  expect(done).toEqual(["batch", "second batch", "sent"]);
});

test("callbacks scheduled in the next tick run at its own end", async () => {
  for (const word of ["first", "second"]) {
    const done: string[] = [];
    atEndOfTick("send", () => done.push(word));
    await new Promise((resolve) => setImmediate(resolve));
    expect(done).toEqual([word]);
  }
});
