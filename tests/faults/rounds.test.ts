import { describe, expect, test } from "vitest";
import { type RoundsOptions, runRounds } from "./rounds.ts";
import type { Card, PlannedFault } from "./schedule.ts";
import type { Workload } from "./workload.ts";

const kill: Card = { fault: "kill", role: "instance", count: 1_000, lastsMs: [0, 0] };
const freeze: Card = { fault: "freeze", role: "worker", count: 1_000, lastsMs: [0, 0] };
const jobs = { name: "jobs", hazards: { stale_runs: ["worker.freeze"] } } as unknown as Workload;

/** Short rounds; `met` says of every look in between how often the hazard had happened by then. */
async function rounds(options: Partial<RoundsOptions>, met: (look: number) => number) {
  const plans: PlannedFault[][] = [];
  let looks = 0;
  await runRounds(
    {
      ...{ seed: 1, lengthMs: 40, roundMs: 40, moreMs: 0, workloads: [jobs], print: () => {} },
      pace: { gapMs: [1, 2] },
      ...options,
    },
    {
      nemesis: { run: async (plan) => void plans.push([...plan]) },
      deck: [kill, freeze],
      cardsOf: (names) => (names.includes("worker.freeze") ? [freeze] : []),
      check: async () => ({ checked: 0, violations: [], reached: { stale_runs: met(looks++) } }),
    },
  );
  return plans;
}
const shareOfFreezes = (plan: readonly PlannedFault[] = []): number =>
  plan.filter(({ fault }) => fault === "freeze").length / plan.length;

describe("rounds of faults", () => {
  test("go on until every hazard was met", async () => {
    expect(await rounds({ moreMs: 3_600_000 }, (look) => (look < 3 ? 0 : 1))).toHaveLength(4);
  });

  test("end when the time to go on is over, whatever was met", async () => {
    expect(await rounds({ moreMs: 0 }, () => 0)).toHaveLength(1);
  });

  test("take as long as they should although everything was met", async () => {
    expect(await rounds({ lengthMs: 120 }, () => 1)).toHaveLength(3);
  });

  test("rounds favour the faults that cause a missing hazard", async () => {
    const [first, second] = await rounds({ lengthMs: 800, roundMs: 400 }, () => 0);
    expect(shareOfFreezes(first)).toBeCloseTo(1 / 2, 1);
    expect(shareOfFreezes(second)).toBeCloseTo(3 / 4, 1);
  });

  test("rounds differ from each other, and are the same for the same seed", async () => {
    const again = () => rounds({ lengthMs: 120 }, () => 1);
    const plans = await again();
    expect(await again()).toEqual(plans);
    expect(plans[1]).not.toEqual(plans[0]);
  });

  test("go on when the stores do not answer", async () => {
    const looks = (look: number) => {
      if (look === 0) throw new Error("away");
      return 1;
    };
    expect(await rounds({ moreMs: 3_600_000 }, looks)).toHaveLength(2);
  });
});
