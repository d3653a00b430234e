import fc from "fast-check";
import { expect, test } from "vitest";
import { type Aged, byAge, createRowsByAge, shardOf } from "./free-rows.ts";

const row = (n: number, age: number): Aged => ({
  id: `row-${n}`,
  ...{ created_at: String(age), updated_at: String(age) },
});

test("rows by age are those that were set last and not deleted, in their order and in their shards", () => {
  // Few ids in few shards: some shards get several rows, lose them, and get them again.
  const ids = Array.from({ length: 5_000 }, (_, n) => n).filter((n) => shardOf(`row-${n}`) < 3);
  const step = fc.tuple(fc.constantFrom(...ids), fc.option(fc.integer({ min: 0, max: 9 })));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const rows = createRowsByAge<Aged>();
      const model = new Map<string, Aged>();
      for (const [n, age] of steps) {
        const { id } = row(n, 0);
        if (age === null) rows.delete(id);
        else rows.set(id, row(n, age));
        if (age === null) model.delete(id);
        else model.set(id, row(n, age));
      }
      const all = [...model.values()].sort(byAge);
      expect(rows.oldest(1_000)).toEqual(all);
      for (const shard of [0, 1, 2])
        expect([...rows.inShard(shard)].sort(byAge)).toEqual(
          all.filter(({ id }) => shardOf(id) === shard),
        );
    }),
  );
});
