import { expect, test } from "vitest";
import { createPriorityLine } from "./priority-line.ts";

test("one after another, the first ones before those that have not begun", async () => {
  const line = createPriorityLine();
  const done: string[] = [];
  const work = (name: string) => async () => {
    done.push(`${name} begins`);
    await new Promise((resolve) => setImmediate(resolve));
    done.push(`${name} ends`);
  };
  const running = line.add(work("a"));
  await Promise.resolve();
  await Promise.all([
    running,
    line.add(work("b")),
    line.add(work("c")),
    line.addFirst(work("x")),
    line.addFirst(work("y")),
  ]);
  expect(done).toEqual(["a", "x", "y", "b", "c"].flatMap((n) => [`${n} begins`, `${n} ends`]));
});

test("work that fails fails for its caller alone", async () => {
  const line = createPriorityLine();
  const failed = line.add(() => Promise.reject(new Error("no")));
  const after = line.add(async () => 1);
  await expect(failed).rejects.toThrow("no");
  expect(await after).toBe(1);
  expect(await line.add(async () => 2)).toBe(2);
});
