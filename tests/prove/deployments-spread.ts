import assert from "node:assert";
import type { Agent } from "@tenure/agent";
import {
  deploymentsOf,
  insertSleepers,
  spreadOver,
  withDatabase,
} from "@tenure/testing/fleet/deployments";
import { startSimulatedUnit } from "@tenure/testing/fleet/node-unit";
import { until } from "@tenure/testing/until";
import { type Instance, startFleet, type TestFleet } from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

interface Scene {
  rows: number;
  nodes: number;
  goalMs: number;
}

const SMALL: readonly Scene[] = [
  { rows: 5, nodes: 2, goalMs: 3_000 },
  { rows: 21, nodes: 2, goalMs: 3_000 },
  { rows: 100, nodes: 10, goalMs: 3_000 },
];
const LARGE: Scene = { rows: 1_000, nodes: 50, goalMs: 10_000 };
// A test run shares its machine; far beyond the goal is still wrong.
const CI_FACTOR = 20;
/** Of so few rows nearly every one may be asked for twice while a slow machine commits. */
const CONFLICTS_MAX = {
  full: (rows: number) => Math.max(1, rows * 0.1),
  ci: (rows: number) => Math.max(5, rows * 0.2),
};

/** Node-units over real sockets that claim and run nothing: what is shown is the claiming. */
export const deploymentsSpread: Proof = {
  name: "deployments-spread",
  summary: "free rows find owners within seconds, within one of each other, with few conflicts",
  async run({ size, print }: ProofRun) {
    const factor = size === "full" ? 1 : CI_FACTOR;
    const scenes = size === "full" ? [...SMALL, LARGE] : SMALL;
    const fleet = await startFleet("memory");
    try {
      // Whole fleets come and go here, which is what the brake is there to doubt.
      const env = { TENURE_MEMBERSHIP_MASS_LOSS_BRAKE: "false" };
      const instance = await fleet.startInstance({ env });
      for (const scene of scenes) await converge(scene);
      await failOver();
      await bySamples();

      async function converge({ rows, nodes, goalMs }: Scene): Promise<void> {
        const units = await startUnits(instance, nodes);
        try {
          const tookMs = await claimed(fleet, { rows });
          await check(`${rows} rows on ${nodes} nodes`, { units, tookMs, goalMs, rows });
        } finally {
          await discard(fleet, units);
        }
      }

      async function failOver(): Promise<void> {
        const [lost, ...survivors] = await startUnits(instance, 3);
        try {
          await insertRows(fleet, 21, lost!.address);
          const startedMs = performance.now();
          await lost!.stop();
          await untilOwned(fleet, lost!.address);
          const tookMs = performance.now() - startedMs;
          const what = "fail-over of 21 rows to 2 survivors";
          await check(what, { units: survivors, tookMs, goalMs: 3_000, rows: 21 });
        } finally {
          await discard(fleet, survivors);
        }
      }

      async function bySamples(): Promise<void> {
        const config = { claim_policy: "resource_usage" };
        const usage = () => ({ cpu_percent: 30, memory_percent: 40 });
        const units = await startUnits(instance, 2, { config, usage });
        // A sample rides with a heartbeat: until both are known nobody is the least busy.
        const sampled = async () => (await sampledNodes(instance)) >= 2;
        await until(sampled, { deadlineMs: 60_000, what: "samples of both nodes" });
        try {
          const tookMs = await claimed(fleet, { rows: 21 });
          const goalMs = 5_000; // a sample may be one interval of the node view away
          const what = "21 rows on 2 nodes by resource_usage, equal samples";
          await check(what, { units, tookMs, goalMs, rows: 21 });
        } finally {
          await discard(fleet, units);
        }
      }

      async function check(
        what: string,
        found: { units: readonly Agent[]; tookMs: number; goalMs: number; rows: number },
      ): Promise<void> {
        const { units, tookMs, goalMs, rows } = found;
        const views = await deploymentsOf(instance.url).list();
        const counts = spreadOver(
          views,
          units.map(({ address }) => address),
        );
        const conflicts = units.reduce((sum, { counts: made }) => sum + made.conflicts, 0);
        const spread = Math.max(...counts) - Math.min(...counts);
        print(
          `${what}: ${(tookMs / 1_000).toFixed(2)} s (goal ${goalMs / 1_000} s), ` +
            `${Math.min(...counts)}–${Math.max(...counts)} each, ${conflicts} conflicts`,
        );
        assert.equal(
          counts.reduce((sum, count) => sum + count, 0),
          rows,
        );
        assert(spread <= 1, `the spread is ${spread}`);
        assert(conflicts <= CONFLICTS_MAX[size](rows), `${conflicts} conflicts`);
        assert(tookMs <= goalMs * factor, `${what} took ${Math.round(tookMs)} ms`);
      }
    } finally {
      await fleet.stop();
    }
  },
};

async function startUnits(
  { url }: Instance,
  count: number,
  options: Partial<Parameters<typeof startSimulatedUnit>[0]> = {},
): Promise<Agent[]> {
  const units = await Promise.all(
    Array.from({ length: count }, (_, n) =>
      startSimulatedUnit({ urls: [url], name: `unit-${n}`, ...options }),
    ),
  );
  const everybody = () =>
    units.every(
      ({ connection }) =>
        connection.members?.view === "ready" && connection.members.members.size === count,
    );
  await until(everybody, { deadlineMs: 120_000, what: "every node to know every node" });
  return units;
}

/** From the insert to the last claim. */
async function claimed(fleet: TestFleet, { rows }: { rows: number }): Promise<number> {
  const startedMs = performance.now();
  await insertRows(fleet, rows, "");
  await untilOwned(fleet, "");
  return performance.now() - startedMs;
}

function insertRows(fleet: TestFleet, count: number, address: string): Promise<void> {
  return withDatabase(fleet.postgres.uri(), (db) => insertSleepers(db, { count, address }));
}

/** Until no row is free, and none belongs to the address named. */
async function untilOwned(fleet: TestFleet, not: string): Promise<void> {
  await withDatabase(fleet.postgres.uri(), async (db) => {
    const left = async () => {
      const { rows } = await db.query(
        "select count(*)::int as left from deployment where address in ('', $1)",
        [not],
      );
      return rows[0].left === 0;
    };
    await until(left, { deadlineMs: 200_000, everyMs: 10, what: "every row to have an owner" });
  });
}

async function discard(fleet: TestFleet, units: readonly Agent[]): Promise<void> {
  await withDatabase(fleet.postgres.uri(), (db) => db.query("delete from deployment"));
  await Promise.all(units.map((unit) => unit.stop()));
}

async function sampledNodes({ url }: Instance): Promise<number> {
  const response = await fetch(`${url}/api/v1/nodes?limit=500&online=true`);
  const { items } = (await response.json()) as { items: { resource_usage?: unknown }[] };
  return items.filter(({ resource_usage }) => resource_usage).length;
}
