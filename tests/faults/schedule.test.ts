import { describe, expect, test } from "vitest";
import { type Card, planFaults } from "./schedule.ts";

const DECK: Card[] = [
  { fault: "kill", role: "instance", count: 3, lastsMs: [500, 4_000] },
  {
    fault: "partition",
    role: "instance",
    count: 3,
    lastsMs: [500, 9_000],
    variants: ["up", "down"],
  },
  { fault: "reset", role: "client", count: 2, lastsMs: [0, 0] },
];
const plan = (seed: number, lengthMs = 60_000) => planFaults(DECK, { seed, lengthMs });

describe("a plan of faults", () => {
  test("a schedule depends on its seed alone", () => {
    expect(plan(7)).toEqual(plan(7));
    expect(plan(8)).not.toEqual(plan(7));
  });

  test("a schedule has every card before any comes twice", () => {
    for (let seed = 0; seed < 50; seed++) {
      const faults = plan(seed).map(({ fault }) => fault);
      expect(new Set(faults.slice(0, 3)).size).toBe(3);
    }
  });

  test("a schedule has one fault at a time per target", () => {
    for (let seed = 0; seed < 50; seed++) {
      const faults = plan(seed);
      for (const [index, one] of faults.entries())
        for (const next of faults.slice(index + 1))
          if (next.role === one.role && next.target === one.target)
            expect(next.atMs).toBeGreaterThanOrEqual(one.atMs + one.forMs);
    }
  });

  test("a schedule ends every fault within the run", () => {
    for (let seed = 0; seed < 50; seed++)
      for (const { atMs, forMs } of plan(seed, 10_000))
        expect(atMs + forMs).toBeLessThanOrEqual(10_000);
  });

  test("names targets and variants that exist", () => {
    const faults = plan(3, 600_000);
    expect(faults.length).toBeGreaterThan(150);
    for (const { fault, target, variant } of faults) {
      expect(target).toBeLessThan(DECK.find((card) => card.fault === fault)!.count);
      expect(fault === "partition" ? ["up", "down"] : [""]).toContain(variant);
    }
    expect(new Set(faults.map(({ target }) => target))).toEqual(new Set([0, 1, 2]));
  });

  test("a schedule has a favoured card every second time", () => {
    const favoured: Card[] = [{ fault: "freeze", role: "worker", count: 3, lastsMs: [0, 0] }];
    for (let seed = 0; seed < 50; seed++) {
      const faults = planFaults(DECK, { seed, lengthMs: 60_000, favoured });
      const wished = faults.filter(({ fault }) => fault === "freeze").length;
      expect(wished).toBeGreaterThan(faults.length / 3);
      expect(new Set(faults.map(({ fault }) => fault)).size).toBe(4);
    }
  });

  test("a schedule starts no fault that has no room before the end", () => {
    const deck: Card[] = [{ fault: "freeze", role: "worker", count: 9, lastsMs: [13_000, 13_000] }];
    for (let seed = 0; seed < 50; seed++)
      for (const { forMs } of planFaults(deck, { seed, lengthMs: 20_000 }))
        expect(forMs).toBe(13_000);
  });

  test("a schedule has nothing beside an exclusive fault", () => {
    const reboot: Card = {
      fault: "stop",
      role: "fleet",
      count: 1,
      lastsMs: [5_000, 5_000],
      isAlone: true,
    };
    for (let seed = 0; seed < 50; seed++) {
      const faults = planFaults([...DECK, reboot], { seed, lengthMs: 60_000 });
      const reboots = faults.filter(({ isAlone }) => isAlone);
      expect(reboots.length).toBeGreaterThan(0);
      for (const { atMs, forMs } of reboots)
        for (const other of faults)
          expect(other.atMs > atMs && other.atMs < atMs + forMs).toBe(false);
    }
  });

  test("a schedule without a deck is empty", () => {
    expect(planFaults([], { seed: 1, lengthMs: 60_000 })).toEqual([]);
  });
});
