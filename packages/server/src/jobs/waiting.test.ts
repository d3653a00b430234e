import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createWaitingRoom, type Waiter } from "./waiting.ts";

let lastId = 0;
const waiter = (words: Partial<Waiter> = {}): Waiter => ({
  jobId: `job-${++lastId}`,
  pool: "gpu",
  priority: 0,
  createdAtMs: lastId,
  need: "",
  ...words,
});

const room = () => createWaitingRoom<Waiter>();

/** The order in which a room hands out those of a pool when there is a place for everybody. */
function order(waiting: ReturnType<typeof room>, pool = "gpu"): string[] {
  const served: string[] = [];
  waiting.serve(pool, ({ jobId }) => served.push(jobId) > 0);
  return served;
}

describe("the waiting room", () => {
  test("serves the highest priority first, then the oldest", () => {
    const waiting = room();
    const low = waiter({ priority: 0 });
    const urgent = waiter({ priority: 9 });
    const alsoUrgent = waiter({ priority: 9 });
    for (const one of [low, urgent, alsoUrgent]) waiting.add(one);
    expect(order(waiting)).toEqual([urgent.jobId, alsoUrgent.jobId, low.jobId]);
    expect(waiting.size()).toBe(0);
  });

  test("a job that comes back keeps its age", () => {
    const waiting = room();
    const [first, second, third] = [waiter(), waiter(), waiter()];
    for (const one of [second, third, first]) waiting.add(one);
    expect(order(waiting)).toEqual([first.jobId, second.jobId, third.jobId]);
  });

  test("a need that cannot be met holds up nobody else", () => {
    const waiting = room();
    const picky = waiter({ need: "whisper" });
    const alsoPicky = waiter({ need: "whisper", priority: 9 });
    const plain = waiter();
    for (const one of [picky, alsoPicky, plain]) waiting.add(one);
    const offered: string[] = [];
    waiting.serve("gpu", ({ jobId, need }) => {
      offered.push(jobId);
      return need === "";
    });
    expect(offered).toEqual([alsoPicky.jobId, plain.jobId]);
    expect(waiting.has(picky.jobId)).toBe(true);
    expect(waiting.size()).toBe(2);
  });

  test("counts by pool, and one that is in it already only once", () => {
    const waiting = room();
    const known = waiter();
    for (const one of [known, waiter(), known, waiter({ pool: "cpu" })]) waiting.add(one);
    expect(waiting.sizeOf("gpu")).toBe(2);
    expect(waiting.size()).toBe(3);
    expect(waiting.remove(known.jobId)).toBe(known);
    expect(waiting.remove(known.jobId)).toBeUndefined();
    expect(waiting.sizeOf("gpu")).toBe(1);
  });

  test("tells since when the oldest waits", () => {
    const waiting = room();
    expect(waiting.oldestMs()).toBeUndefined();
    waiting.add(waiter({ createdAtMs: 500, priority: 9 }));
    waiting.add(waiter({ createdAtMs: 700, pool: "cpu" }));
    waiting.add(waiter({ createdAtMs: 300 }));
    expect(waiting.oldestMs()).toBe(300);
  });

  test("agrees with sorting, whatever comes and goes", () => {
    const step = fc.record({
      priority: fc.integer({ min: 0, max: 2 }),
      createdAtMs: fc.integer({ min: 0, max: 20 }),
      need: fc.constantFrom("", "a"),
      drop: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const waiting = room();
        let model: Waiter[] = [];
        for (const { drop, ...words } of steps) {
          const one = waiter(words);
          waiting.add(one);
          model.push(one);
          if (drop) {
            const gone = model[model.length >> 1]!;
            waiting.remove(gone.jobId);
            model = model.filter((other) => other !== gone);
          }
        }
        const rank = ({ priority, createdAtMs }: Waiter) => -priority * 1_000 + createdAtMs;
        const ranks = new Map(model.map((one) => [one.jobId, rank(one)]));
        const served = order(waiting).map((jobId) => ranks.get(jobId));
        expect(served).toEqual([...ranks.values()].sort((a, b) => a - b));
        expect(waiting.pools()).toEqual([]);
      }),
    );
  });
});
