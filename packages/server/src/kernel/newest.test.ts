import { expect, test } from "vitest";
import { newestOnly } from "./newest.ts";

test("one at a time, and of those that wait the newest", async () => {
  const begun: number[] = [];
  let end = () => {};
  const take = newestOnly<number>((item) => {
    begun.push(item);
    return new Promise((resolve) => {
      end = resolve;
    });
  });
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  for (const item of [1, 2, 3]) take(item);
  expect(begun).toEqual([1]);
  end();
  await turn();
  expect(begun).toEqual([1, 3]);
  end();
  await turn();
  take(4);
  expect(begun).toEqual([1, 3, 4]);
});
