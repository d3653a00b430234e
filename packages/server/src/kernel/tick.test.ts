import { expect, test } from "vitest";
import { atEndOfTurn } from "./tick.ts";

test("what is gathered in a turn is sent in the same turn, after everything else that is gathered", async () => {
  const done: string[] = [];
  atEndOfTurn("send", () => done.push("sent"));
  atEndOfTurn("gather", () => {
    done.push("gathered");
    atEndOfTurn("gather", () => done.push("gathered further"));
  });
  const afterwards = new Promise((resolve) => setImmediate(resolve));
  expect(done).toEqual([]);
  await afterwards;
  expect(done).toEqual(["gathered", "gathered further", "sent"]);
});

test("the next turn has an end of its own", async () => {
  for (const word of ["first", "second"]) {
    const done: string[] = [];
    atEndOfTurn("send", () => done.push(word));
    await new Promise((resolve) => setImmediate(resolve));
    expect(done).toEqual([word]);
  }
});
