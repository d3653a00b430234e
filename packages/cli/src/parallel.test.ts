import { setTimeout as wait } from "node:timers/promises";
import { expect, test } from "vitest";
import { inParallel } from "./parallel.ts";

test("items are begun in order, never more than the limit at once", async () => {
  const begun: number[] = [];
  let running = 0;
  let most = 0;
  await inParallel([1, 2, 3, 4, 5, 6, 7], 3, async (item) => {
    begun.push(item);
    most = Math.max(most, ++running);
    await wait(1);
    running--;
  });
  expect(begun).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(most).toBe(3);
});

test("after a failure nothing else is begun, and it is thrown when the others have ended", async () => {
  const ended: number[] = [];
  const work = async (item: number) => {
    if (item === 2) throw new Error("no");
    await wait(5);
    ended.push(item);
  };
  await expect(inParallel([1, 2, 3, 4], 2, work)).rejects.toThrow("no");
  expect(ended).toEqual([1]);
});
