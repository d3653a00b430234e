import { expect, test } from "vitest";
import { perTurn } from "./batch.ts";

test("what is asked in one turn is asked together, by key, and answered apart", async () => {
  const asked: [string, number[]][] = [];
  const double = perTurn<number, number>(async (key, items) => {
    asked.push([key, items]);
    return items.map((item) => item * 2);
  });
  const answers = [double("a", 1), double("b", 2), double("a", 3)];
  expect(asked).toEqual([]);
  expect(await Promise.all(answers)).toEqual([2, 4, 6]);
  expect(await double("a", 4)).toBe(8);
  expect(asked).toEqual([
    ["a", [1, 3]],
    ["b", [2]],
    ["a", [4]],
  ]);
});

test("a failure reaches everybody of its key, and nobody else", async () => {
  const ask = perTurn<number, string>(async (key, items) => {
    if (key === "bad") throw new Error("no");
    return items.map(String);
  });
  const answers = await Promise.allSettled([ask("bad", 1), ask("good", 2), ask("bad", 3)]);
  expect(answers.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "rejected"]);
});

test("a burst is asked in parts, in its order", async () => {
  const sizes: number[] = [];
  const ask = perTurn<number, number>(async (_, items) => {
    sizes.push(items.length);
    return items;
  });
  const items = Array.from({ length: 2_500 }, (_, n) => n);
  expect(await Promise.all(items.map((item) => ask("a", item)))).toEqual(items);
  expect(sizes).toEqual([1_000, 1_000, 500]);
});
