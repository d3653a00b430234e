import fc from "fast-check";
import { expect, test } from "vitest";
import { createIndexedHeap } from "./heap.ts";

test("the heap keeps its least item first while items are re-ranked and removed", () => {
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
