import { expect, test } from "vitest";
import { createCallBudgets } from "./call-budget.ts";
import { createCallQueue } from "./call-queue.ts";

const turn = () => new Promise((resolve) => setImmediate(resolve));

test("16 calls run at a time, in order of arrival, and reading pauses with 16 more", async () => {
  const full: boolean[] = [];
  const ends: (() => void)[] = [];
  const begun: number[] = [];
  const line = createCallQueue((isFull) => full.push(isFull));
  for (let k = 0; k < 40; k++) {
    line.run(() => {
      begun.push(k);
      return new Promise((resolve) => ends.push(resolve));
    });
  }
  expect(begun.length).toBe(16);
  expect(full).toEqual([true]);
  for (let ended = 0; ended < 40; ended++) {
    ends[ended]?.();
    await turn();
    expect(begun.length).toBe(Math.min(40, ended + 17));
  }
  expect(begun).toEqual(Array.from({ length: 40 }, (_, k) => k));
  expect(full).toEqual([true, false]);
});

test("calls that had not begun when the socket closed never begin", async () => {
  const ends: (() => void)[] = [];
  let begun = 0;
  const line = createCallQueue(() => {});
  for (let k = 0; k < 20; k++) {
    line.run(() => {
      begun += 1;
      return new Promise((resolve) => ends.push(resolve));
    });
  }
  line.end();
  for (const end of ends) end();
  await turn();
  expect(begun).toBe(16);
});

test("the sockets of a token share its budget, which refills with time", async () => {
  let nowMs = 0;
  const budgetOf = createCallBudgets(100, { monotonicMs: () => nowMs });
  for (let k = 0; k < 200; k++) expect(budgetOf("fleet").take()).toBeUndefined();
  expect(budgetOf("other").take()).toBeUndefined();
  const order: number[] = [];
  const waits = [1, 2, 3].map((k) =>
    budgetOf("fleet")
      .take()
      ?.then(() => order.push(k)),
  );
  nowMs = 20;
  await Promise.all(waits.slice(0, 2));
  expect(order).toEqual([1, 2]);
  nowMs = 1_000;
  await waits[2];
  expect(budgetOf("fleet").take()).toBeUndefined();
});

test("a limit of 0 means no limit", () => {
  const budget = createCallBudgets(0, { monotonicMs: () => 0 })("fleet");
  for (let k = 0; k < 10_000; k++) expect(budget.take()).toBeUndefined();
});
