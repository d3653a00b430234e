import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { offersOf } from "../policy/offers.ts";
import type { Waiter } from "./wait-line.ts";
import { createWaitQueue, type Offered, type Openings } from "./wait-queue.ts";

let lastId = 0;
const waiter = (words: Partial<Waiter> = {}): Waiter => ({
  jobId: `job-${++lastId}`,
  tenant: "default",
  pool: "gpu",
  service: undefined,
  priority: 0,
  createdMs: lastId,
  need: "",
  ...words,
});

/** Every service, and every node, has a free slot. */
const ALL: Openings = { offers: offersOf([{ services: ["whisper", "a"] }]), isOpen: () => true };
const someServices = (...services: string[]): Openings => ({
  offers: offersOf([{ services }]),
  isOpen: () => false,
});

const room = () => createWaitQueue<Waiter>();

/** The order in which a queue serves the jobs of a pool when there is a slot for each. */
function order(waiting: ReturnType<typeof room>, pool = "gpu"): string[] {
  const served: string[] = [];
  waiting.serve(pool, ALL, ({ jobId }) => {
    served.push(jobId);
    return "taken";
  });
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

  test("a need that cannot be met delays no other job", () => {
    const waiting = room();
    const picky = waiter({ service: "whisper", need: "whisper" });
    const alsoPicky = waiter({ service: "whisper", need: "whisper", priority: 9 });
    const plain = waiter();
    for (const one of [picky, alsoPicky, plain]) waiting.add(one);
    const offered: string[] = [];
    waiting.serve("gpu", ALL, ({ jobId, need }) => {
      offered.push(jobId);
      return need === "" ? "taken" : "no_room";
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

  test("counts by tenant within a pool", () => {
    const waiting = room();
    const [first, second] = [waiter({ tenant: "blue" }), waiter({ tenant: "blue", need: "x" })];
    for (const one of [first, second, waiter({ tenant: "red" })]) waiting.add(one);
    expect(waiting.sizeOfTenant("gpu", "blue")).toBe(2);
    waiting.remove(first.jobId);
    expect(waiting.sizeOfTenant("gpu", "blue")).toBe(1);
    waiting.remove(second.jobId);
    expect(waiting.sizeOfTenant("gpu", "blue")).toBe(0);
    expect(waiting.sizeOfTenant("gpu", "red")).toBe(1);
    expect(waiting.sizeOfTenant("cpu", "red")).toBe(0);
  });

  test("the queue knows since when its oldest job waits", () => {
    const waiting = room();
    expect(waiting.oldestMs()).toBeUndefined();
    waiting.add(waiter({ createdMs: 500, priority: 9 }));
    waiting.add(waiter({ createdMs: 700, pool: "cpu" }));
    waiting.add(waiter({ createdMs: 300 }));
    expect(waiting.oldestMs()).toBe(300);
  });

  test("the queue serves in the order of a sorted list, with any additions and removals", () => {
    const step = fc.record({
      priority: fc.integer({ min: 0, max: 2 }),
      createdMs: fc.integer({ min: 0, max: 20 }),
      service: fc.constantFrom(undefined, "a"),
      turn: fc.constantFrom("", " in one", " in two"),
      drop: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const waiting = room();
        let model: Waiter[] = [];
        for (const { drop, turn, ...words } of steps) {
          const one = waiter({ ...words, need: `${words.service ?? ""}${turn}` });
          waiting.add(one);
          model.push(one);
          if (drop) {
            const gone = model[model.length >> 1]!;
            waiting.remove(gone.jobId);
            model = model.filter((other) => other !== gone);
          }
        }
        const rank = ({ priority, createdMs }: Waiter) => -priority * 1_000 + createdMs;
        const ranks = new Map(model.map((one) => [one.jobId, rank(one)]));
        const served = order(waiting).map((jobId) => ranks.get(jobId));
        expect(served).toEqual([...ranks.values()].sort((a, b) => a - b));
        expect(waiting.pools()).toEqual([]);
      }),
    );
  });

  test("a turn that waits for its node is offered when that node has a slot, or when it is released", () => {
    const waiting = room();
    const speaking = waiter({ need: " in one" });
    const plain = waiter();
    for (const one of [speaking, plain]) waiting.add(one);
    const offers = (openings: Openings, answer: (one: Waiter) => Offered) => {
      const offered: Waiter[] = [];
      waiting.serve("gpu", openings, (one) => {
        offered.push(one);
        return answer(one);
      });
      return offered;
    };
    const itsNode = (one: Waiter): Offered => (one === speaking ? { nodeId: "n" } : "no_room");
    expect(offers(someServices(), itsNode)).toEqual([speaking, plain]);
    expect(offers(someServices(), itsNode)).toEqual([plain]);
    // Its node has a slot, which another job takes first: it keeps waiting, and is not offered in a loop.
    const freed = {
      offers: offersOf([{ services: [] }]),
      isOpen: (nodeId: string) => nodeId === "n",
    };
    expect(offers(freed, itsNode)).toEqual([speaking, plain]);
    waiting.endNodeWait(speaking.jobId);
    expect(offers(someServices(), () => "not_now")).toEqual([speaking, plain]);
    // Refused for now, both are where they were.
    expect(order(waiting)).toEqual([speaking.jobId, plain.jobId]);
  });

  test("counts the different needs of a tenant", () => {
    const waiting = room();
    const jobs = [
      waiter(),
      waiter(),
      waiter({ need: "s" }),
      waiter({ pool: "cpu" }),
      waiter({ tenant: "other" }),
    ];
    for (const one of jobs) waiting.add(one);
    expect([waiting.needsOf("default"), waiting.needsOf("other")]).toEqual([3, 1]);
    expect(waiting.hasNeed("default", { pool: "gpu", need: "s" })).toBe(true);
    for (const one of jobs.slice(1)) waiting.remove(one.jobId);
    expect([waiting.needsOf("default"), waiting.needsOf("other")]).toEqual([1, 0]);
    expect(waiting.hasNeed("default", { pool: "gpu", need: "s" })).toBe(false);
  });
});

describe("with 5,000 waiting turns and 5,000 service names", () => {
  const MANY = 5_000;

  function crowd() {
    let reads = 0;
    const waiting = room();
    const add = (words: Partial<Waiter>) => {
      const one = waiter(words);
      const { createdMs } = one;
      // Read once or twice in each comparison, and nowhere else.
      Object.defineProperty(one, "createdMs", {
        get() {
          reads += 1;
          return createdMs;
        },
      });
      waiting.add(one);
    };
    for (let at = 0; at < MANY; at++) {
      add({ need: ` in turn-${at}` });
      add({ service: `s${at}`, need: `s${at}` });
    }
    return {
      waiting,
      serve(openings: Openings, answer: (one: Waiter) => Offered) {
        reads = 0;
        let offers = 0;
        waiting.serve("gpu", openings, (one) => {
          offers += 1;
          return answer(one);
        });
        return { offers, reads };
      },
    };
  }

  test("a free slot costs one offer and a few comparisons", () => {
    const { serve } = crowd();
    let free = 1;
    const one = serve(someServices(), () => (free-- > 0 ? "taken" : "no_room"));
    expect(one.offers).toBe(2);
    expect(one.reads).toBeLessThan(100);
    const named = serve(someServices("s17", "s4000", "unknown"), ({ service }) =>
      service ? "taken" : "no_room",
    );
    expect(named.offers).toBe(3);
    expect(named.reads).toBeLessThan(100);
  });

  test("turns that wait for a full node cost nothing until it has a free slot", () => {
    const { serve } = crowd();
    const first = serve(someServices(), () => ({ nodeId: "busy" }));
    expect(first.offers).toBe(MANY);
    expect(serve(someServices(), () => "no_room")).toEqual({ offers: 0, reads: 0 });
    const freed = { offers: offersOf([{ services: [] }]), isOpen: () => true };
    expect(serve(freed, () => "no_room")).toMatchObject({ offers: 1 });
  });

  test("serving all of them is no more than sorting them", () => {
    const { waiting, serve } = crowd();
    const all = {
      offers: offersOf([{ services: Array.from({ length: MANY }, (_, at) => `s${at}`) }]),
      isOpen: () => true,
    };
    const { offers, reads } = serve(all, () => "taken");
    expect(offers).toBe(2 * MANY);
    expect(reads).toBeLessThan(2 * MANY * 2 * 2 * Math.log2(2 * MANY) * 2);
    expect(waiting.size()).toBe(0);
  });
});

test("jobs of a tenant that no free node serves are neither offered nor touched", () => {
  const waiting = room();
  const [mine, theirs] = [waiter(), waiter({ tenant: "blue", createdMs: 0 })];
  for (const one of [mine, theirs]) waiting.add(one);
  const offered = (tenants: string[][]): Waiter[] => {
    const seen: Waiter[] = [];
    const offers = offersOf(tenants.map((of) => ({ tenants: of, services: [] })));
    waiting.serve("gpu", { offers, isOpen: () => false }, (one) => {
      seen.push(one);
      return "no_room";
    });
    return seen;
  };
  expect(offered([["default"]])).toEqual([mine]);
  expect(offered([["blue"]])).toEqual([theirs]);
  expect(offered([["blue", "default"]])).toEqual([theirs, mine]);
  expect(offered([["red"], ["*"]])).toEqual([theirs, mine]);
  expect(offered([["red"]])).toEqual([]);
  expect([...waiting.tenantsIn("gpu")]).toEqual(["default", "blue"]);
  waiting.remove(mine.jobId);
  expect([...waiting.tenantsIn("gpu")]).toEqual(["blue"]);
});
