import { expect, test } from "vitest";
import { createGate } from "./gate.ts";

test("so many are inside at once, and the others come in their order", async () => {
  const pass = createGate(2);
  const began: number[] = [];
  const ends: (() => void)[] = [];
  const act = (n: number) => () => {
    began.push(n);
    return new Promise<number>((resolve) => {
      ends[n] = () => resolve(n);
    });
  };
  const passed = [0, 1, 2, 3, 4].map((n) => pass(act(n)));
  await settled();
  expect(began).toEqual([0, 1]);
  ends[1]!();
  expect(await passed[1]).toBe(1);
  await settled();
  expect(began).toEqual([0, 1, 2]);
  ends[0]!();
  ends[2]!();
  await settled();
  expect(began).toEqual([0, 1, 2, 3, 4]);
  ends[3]!();
  ends[4]!();
  expect(await Promise.all(passed)).toEqual([0, 1, 2, 3, 4]);
});

test("who fails leaves its place to the next", async () => {
  const pass = createGate(1);
  const failing = pass(() => Promise.reject(new Error("no")));
  const throwing = pass(() => {
    throw new Error("not even begun");
  });
  await expect(failing).rejects.toThrow("no");
  await expect(throwing).rejects.toThrow("not even begun");
  expect(await pass(async () => "in")).toBe("in");
});

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));
