import { describe, expect, test } from "vitest";
import { createJobs } from "../../../packages/server/src/jobs/jobs.ts";
import { jobIn } from "../../../packages/server/src/jobs/store/memory-job.ts";
import {
  claimOwner,
  dropOwner,
  ownerKeys,
} from "../../../packages/server/src/membership/store/owner-store.ts";
import { openMemory } from "../../../packages/server/src/store/memory.ts";
import { PLANTED } from "./planted.ts";
import { type JobsRun, runJobs } from "./world.ts";

// The jobs of the server, whole, over their store in memory and a network that the seed makes.
// `npm run simulate -- --jobs 2000` runs more of the same seeds.

const parts = { createJobs, openMemory, claimOwner, dropOwner, ownerKeys, jobIn };
const SEEDS = 40;
const LIMIT_MS = 600_000;

describe("jobs, by seed", () => {
  test(
    `I4, I5, I6, I11: ${SEEDS} fleets, each through its own trouble, and every request has its one result`,
    async () => {
      const all: JobsRun[] = [];
      for (let seed = 1; seed <= SEEDS; seed++) {
        const run = await runJobs(parts, seed);
        expect(run.violations, `seed ${seed}`).toEqual([]);
        all.push(run);
      }
      // A green run in which nothing happened is a red one.
      const reached = (name: keyof JobsRun["reached"]) =>
        all.reduce((sum, run) => sum + run.reached[name], 0);
      expect(reached("applied")).toBeGreaterThan(SEEDS * 5);
      expect(reached("retried")).toBeGreaterThan(SEEDS);
      expect(reached("stale")).toBeGreaterThan(5);
      expect(reached("duplicates")).toBeGreaterThan(5);
      expect(reached("told")).toBeGreaterThanOrEqual(
        all.reduce((sum, run) => sum + run.requests, 0),
      );
      expect(new Set(all.flatMap((run) => [...run.faults.keys()])).size).toBe(6);
    },
    LIMIT_MS,
  );

  test("the same seed is the same run", async () => {
    const [first, again, other] = [
      await runJobs(parts, 3),
      await runJobs(parts, 3),
      await runJobs(parts, 4),
    ];
    expect(again).toEqual(first);
    expect(other.steps).not.toBe(first.steps);
  });
});

describe("planted bugs", () => {
  test.each(Object.entries(PLANTED))(
    "%s is caught",
    async (_, spoil) => {
      const caught: string[] = [];
      for (let seed = 1; seed <= SEEDS && caught.length === 0; seed++)
        caught.push(...(await runJobs(parts, seed, { spoil })).violations);
      expect(caught.length).toBeGreaterThan(0);
    },
    LIMIT_MS,
  );
});
