import { describe, expect, test } from "vitest";
import { HARMLESS, PLANTED } from "./planted.ts";
import { type ClaimsRun, count, runClaims } from "./world.ts";

// The loop of the agent against an arbiter in memory. `npm run simulate -- --claims 5000` runs more of the same seeds.

const SEEDS = 150;
/** Some bugs need a rare meeting. The seeds are fixed, so whether they find it does not depend on the machine. */
const SEEDS_FOR_A_BUG_MAX = 2_000;
/** The machine may be many times slower than it looks; a run itself takes no time but its steps. */
const LIMIT_MS = 600_000;

describe("claims, by seed", () => {
  test(
    `I1, I2, I3, I11: ${SEEDS} fleets, each through its own trouble, and everything has its owner in the end`,
    async () => {
      const all: ClaimsRun[] = [];
      for (let seed = 1; seed <= SEEDS; seed++) {
        const run = await runClaims(seed);
        expect(run.violations, `seed ${seed}`).toEqual([]);
        all.push(run);
      }
      const calls = totals(all.map((run) => run.calls));
      // A green run in which nothing happened is a red one.
      expect(sum(all, (run) => run.reached.claims)).toBeGreaterThan(SEEDS * 5);
      expect(sum(all, (run) => run.reached.releases)).toBeGreaterThan(SEEDS);
      expect(sum(all, (run) => run.reached.handovers)).toBeGreaterThan(10);
      expect(totals(all.map((run) => run.faults)).size).toBeGreaterThanOrEqual(15);
      const conflicts = calls.get("deployment.claim ERR_CLAIM_CONFLICT") ?? 0;
      expect(conflicts / (calls.get("deployment.claim ok") ?? 0)).toBeLessThan(0.2);
    },
    LIMIT_MS,
  );

  test("the same seed is the same run", async () => {
    const [first, again, other] = [await runClaims(7), await runClaims(7), await runClaims(8)];
    expect(again).toEqual(first);
    expect(other.steps).not.toBe(first.steps);
  });
});

describe("planted bugs", () => {
  test.each(Object.entries(PLANTED))(
    "%s is caught",
    async (_, planted) => {
      expect(await firstCaught(planted, SEEDS_FOR_A_BUG_MAX)).toBeDefined();
    },
    LIMIT_MS,
  );

  test.each(Object.entries(HARMLESS))(
    "%s change nothing: the statements decide",
    async (_, planted) => {
      expect(await firstCaught(planted, 20)).toBeUndefined();
    },
    LIMIT_MS,
  );
});

async function firstCaught(
  planted: Parameters<typeof runClaims>[1],
  seeds: number,
): Promise<string | undefined> {
  for (let seed = 1; seed <= seeds; seed++) {
    const { violations } = await runClaims(seed, planted);
    if (violations[0]) return `seed ${seed}: ${violations[0]}`;
  }
  return undefined;
}

const sum = (all: ClaimsRun[], of: (run: ClaimsRun) => number): number =>
  all.reduce((total, run) => total + of(run), 0);

function totals(counts: ReadonlyMap<string, number>[]): Map<string, number> {
  const all = new Map<string, number>();
  for (const one of counts) for (const [name, times] of one) count(all, name, times);
  return all;
}
