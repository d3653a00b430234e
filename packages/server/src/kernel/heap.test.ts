import fc from "fast-check";
import { expect, test } from "vitest";
import { createHeap } from "./heap.ts";

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
