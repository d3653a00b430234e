import { expect, test } from "vitest";
import { MemorySpace } from "./memory-space.ts";

function fill(space: MemorySpace, count: number): void {
  for (let n = 0; n < count; n++) space.set(`key:${n}`, "value", 1_000);
}

test("a sweep drops what ran out, in steps that do not grow with the space", () => {
  let nowMs = 0;
  const space = new MemorySpace(() => nowMs);
  fill(space, 100_000);
  space.set("kept", "value");
  nowMs = 1_001;
  const sizes = [space.size];
  for (const _ of space.sweep()) sizes.push(space.size);
  const dropped = sizes.slice(1).map((size, at) => sizes[at]! - size);
  expect(Math.max(...dropped)).toBeLessThanOrEqual(2_000);
  expect(space.size).toBe(1);
  expect(space.get("kept")).toBe("value");
});

test("a sweep drops what others emptied, and minds neither new keys nor deleted ones between its steps", () => {
  const space = new MemorySpace(() => 0);
  fill(space, 5_000);
  space.hash("emptied").set("field", "value");
  let step = 0;
  for (const _ of space.sweep()) {
    space.delete("key:4999");
    space.hash("emptied").delete("field");
    space.set(`new:${step++}`, "value");
  }
  expect(step).toBe(2);
  expect(space.has("emptied")).toBe(false);
  expect(space.size).toBe(4_999 + step);
});
