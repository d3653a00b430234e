import fc from "fast-check";
import { expect, test } from "vitest";
import { createHeap, createIndexedHeap } from "./heap.ts";

test("whatever comes and goes, the least of those inside is first", () => {
  const steps = fc.array(fc.oneof(fc.integer({ min: 0, max: 50 }), fc.constant("pop" as const)));
  fc.assert(
    fc.property(steps, (script) => {
      const heap = createHeap<number>((a, b) => a < b);
      const model: number[] = [];
      for (const step of script) {
        if (step === "pop") expect(heap.pop()).toBe(model.shift());
        else {
          heap.push(step);
          model.push(step);
          model.sort((a, b) => a - b);
        }
        expect(heap.first()).toBe(model[0]);
        expect(heap.size).toBe(model.length);
      }
    }),
    { numRuns: 1_000, seed: 1 },
  );
});

test("whatever changes its rank or leaves, the least of those inside is first", () => {
  const item = fc.integer({ min: 0, max: 9 });
  const step = fc.record({ item, act: fc.constantFrom("push", "remove", "move"), rank: item });
  fc.assert(
    fc.property(fc.array(step), (steps) => {
      const ranks = Array.from({ length: 10 }, (_, at) => at);
      const heap = createIndexedHeap<number>((a, b) => ranks[a]! < ranks[b]!);
      const model = new Set<number>();
      for (const { item, act, rank } of steps) {
        if (act === "move") {
          ranks[item] = rank;
          heap.moved(item);
        } else if (act === "push") {
          heap.push(item);
          model.add(item);
        } else {
          heap.remove(item);
          model.delete(item);
        }
        expect(heap.size).toBe(model.size);
        const least = Math.min(...[...model].map((each) => ranks[each]!));
        const first = heap.first();
        expect(first === undefined ? Number.POSITIVE_INFINITY : ranks[first]).toBe(least);
      }
    }),
    { numRuns: 1_000, seed: 1 },
  );
});
