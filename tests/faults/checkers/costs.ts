import type { Findings } from "../workload.ts";
import { createViolations } from "./operations.ts";

/** What some seconds without load, or some jobs, cost the stores. Counts, because times are the machine's. */
export interface Cost {
  /** `idle` seconds, or `jobs`. */
  of: "idle" | "jobs";
  /** How many seconds or jobs. */
  units: number;
  /** Rows of `node_unit` that Postgres read, transactions it committed, commands Redis processed. */
  rows: number;
  transactions: number;
  commands: number;
  /** Node-units that are gone and still have a row. */
  dead: number;
}

export type CostLimits = Record<
  Cost["of"],
  Partial<Record<"rows" | "transactions" | "commands", number>>
>;

const MEASURES = ["rows", "transactions", "commands"] as const;

/**
 * The median window of each kind costs no more than its limit allows for one second or one job. The median, because what a
 * dead node-unit costs recurs in every window, while a window may hold one sweep of the whole table: hourly sweeps run once
 * at the start, and Postgres publishes the counts of an idle connection up to 10 s late.
 */
export function checkCosts(costs: readonly Cost[], limits: CostLimits): Findings {
  const violations = createViolations();
  const kinds = ["idle", "jobs"] as const;
  for (const of of kinds)
    for (const measure of MEASURES) {
      const windows = costs
        .filter((cost) => cost.of === of)
        .map((cost) => ({ each: cost[measure] / cost.units, dead: cost.dead }))
        .sort((a, b) => a.each - b.each);
      const median = windows[Math.floor((windows.length - 1) / 2)];
      const limit = limits[of][measure];
      if (median && limit !== undefined && median.each > limit)
        violations.add(
          `${of}: ${median.each.toFixed(1)} ${measure} each, ${limit} are allowed (${median.dead} dead node-units)`,
        );
    }
  return {
    checked: costs.length,
    violations: violations.all,
    reached: {
      idle_windows: costs.filter(({ of }) => of === "idle").length,
      job_windows: costs.filter(({ of }) => of === "jobs").length,
    },
  };
}
