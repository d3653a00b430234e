import { expect, test } from "vitest";
import { createManualClock } from "../../testing/manual-clock.ts";
import { batchPerTick, batchWhileBusy, gatherPerPause, gatherPerTick } from "./batch.ts";

test("calls of one tick run as one batch per key and are answered one by one", async () => {
  const asked: [string, number[]][] = [];
  const double = batchPerTick<number, number>(async (key, items) => {
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

test("a failed batch rejects the calls of its key only", async () => {
  const ask = batchPerTick<number, string>(async (key, items) => {
    if (key === "bad") throw new Error("no");
    return items.map(String);
  });
  const answers = await Promise.allSettled([ask("bad", 1), ask("good", 2), ask("bad", 3)]);
  expect(answers.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "rejected"]);
});

test("a burst of calls is split into batches in order", async () => {
  const sizes: number[] = [];
  const ask = batchPerTick<number, number>(async (_, items) => {
    sizes.push(items.length);
    return items;
  });
  const items = Array.from({ length: 2_500 }, (_, n) => n);
  expect(await Promise.all(items.map((item) => ask("a", item)))).toEqual(items);
  expect(sizes).toEqual([1_000, 1_000, 500]);
});

test("calls that come while a batch runs are the next batch", async () => {
  const batches: number[][] = [];
  const double = batchWhileBusy<number, number>(async (items) => {
    batches.push(items);
    await new Promise((resolve) => setImmediate(resolve));
    return items.map((item) => item * 2);
  });
  expect(await Promise.all([1, 2, 3].map(double))).toEqual([2, 4, 6]);
  expect(batches).toEqual([[1], [2, 3]]);
});

test("calls that come while the batches rest are the next batch, also after an error", async () => {
  const batches: number[][] = [];
  let wake = () => {};
  const ask = batchWhileBusy<number, number>(
    async (items) => {
      batches.push(items);
      if (items.includes(1)) throw new Error("no");
      return items;
    },
    {
      rest: () =>
        new Promise((resolve) => {
          wake = resolve;
        }),
    },
  );
  await expect(ask(1)).rejects.toThrow("no");
  const later = [ask(2), ask(3)];
  await new Promise((resolve) => setImmediate(resolve));
  expect(batches).toEqual([[1]]);
  wake();
  expect(await Promise.all(later)).toEqual([2, 3]);
  expect(batches).toEqual([[1], [2, 3]]);
});

test("a batch ends before its weight is too large, and has at least one call", async () => {
  const batches: number[][] = [];
  const same = batchWhileBusy<number, number>(
    async (items) => {
      batches.push(items);
      await new Promise((resolve) => setImmediate(resolve));
      return items;
    },
    { weightOf: (item) => item, weightMax: 10 },
  );
  const items = [50, 6, 4, 1, 50, 9];
  expect(await Promise.all(items.map(same))).toEqual(items);
  expect(batches).toEqual([[50], [6, 4], [1], [50], [9]]);
});

test("calls of one pause run as one batch per key; a stop runs what was collected at once", async () => {
  const clock = createManualClock();
  const stopping = new AbortController();
  const asked: [string, number[]][] = [];
  const note = gatherPerPause<number>(
    async (key, items) => {
      asked.push([key, items]);
    },
    { clock, pauseMs: 100, signal: stopping.signal },
  );
  const first = [note("a", 1), note("b", 2)];
  clock.advance(99);
  const second = note("a", 3);
  expect(asked).toEqual([]);
  clock.advance(1);
  await Promise.all([...first, second]);
  expect(asked).toEqual([
    ["a", [1, 3]],
    ["b", [2]],
  ]);
  const last = note("a", 4);
  stopping.abort();
  await last;
  await note("a", 5);
  expect(asked.slice(2)).toEqual([
    ["a", [4]],
    ["a", [5]],
  ]);
});

test("calls without an answer fail with their batch, also when it throws at once, and with no other", async () => {
  const ran: string[] = [];
  const note = gatherPerTick<number>((key) => {
    if (key === "bad") throw new Error("no");
    ran.push(key);
    return Promise.resolve();
  });
  const answers = await Promise.allSettled([note("bad", 1), note("good", 2), note("bad", 3)]);
  expect(answers.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "rejected"]);
  expect(ran).toEqual(["good"]);
});
