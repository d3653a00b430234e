import type { Member } from "@tenure/protocol";
import { expect, test } from "vitest";
import { claimPolicyOf } from "../../../packages/agent/src/claim/policy.ts";
import { createRowIndex } from "../../../packages/agent/src/loop/row-index.ts";
import { createChance } from "../chance.ts";
import { COSTS } from "./costs.ts";
import { policyOf } from "./fleet.ts";
import { converge, failOver, rowsOf } from "./scenarios.ts";
import { createVersionedTable } from "./table.ts";

const SIZE = { nodes: 30, deployments: 300, instances: 2, seed: 1, costs: COSTS };

test("a fleet converges evenly, and takes over from lost nodes", async () => {
  const converged = await converge(SIZE, () => {});
  expect(converged.tookMs).toBeLessThan(10_000);
  expect(converged.spread).toBe(0);
  expect(converged.tally.claims).toBe(300);
  const taken = await failOver(SIZE, 3, () => {});
  expect(taken.tookMs).toBeLessThan(10_000);
  expect(taken.tally.claims).toBe(30);
  expect(taken.spread).toBeLessThanOrEqual(1);
});

test("the same seed is the same run", async () => {
  const [first, again] = [await converge(SIZE, () => {}), await converge(SIZE, () => {})];
  expect(again).toEqual(first);
});

test("a node sees in the shared table what it would hold of its own, and picks whom the agent would", () => {
  const chance = createChance(5);
  const addresses = ["a", "b", "c", "d", "gone"];
  const table = createVersionedTable(2_000);
  const index = createRowIndex();
  let readTo = 0;
  const put = (row: ReturnType<typeof table.get>) => readTo === table.head() - 1 && index.put(row);
  for (const row of rowsOf(60, () => "")) {
    table.insert(row);
    put(row);
    readTo = table.head();
  }
  for (let step = 0; step < 500; step++) {
    const id = chance.oneOf(rowsOf(60, () => "")).id;
    const { generation } = table.get(id);
    const address = chance.isTrue(0.5) ? "" : chance.oneOf(addresses);
    const row = table.write(id, { address, generation: generation + 1 });
    // The reader falls behind by up to ten changes, and then reads them all.
    if (readTo === table.head() - 1 && chance.isTrue(0.5)) {
      index.put(row);
      readTo = table.head();
    } else if (table.head() - readTo > 10) {
      for (const one of rowsOf(60, () => "")) index.put(table.get(one.id));
      readTo = table.head();
    }
    const members = new Map(
      ["a", "b", "c", "d"].map((one) => [one, { draining: false } as Member]),
    );
    const view = table.at(readTo);
    const seen = [...view.oldestFree(512), ...view.ownedBy(["gone"])];
    const held = index.relevant(members);
    expect(seen.map(nameOf).sort()).toEqual(held.map(nameOf).sort());
    const nodes = ["a", "b", "c", "d"];
    const own = claimPolicyOf("deployment_count")!;
    const context = { deployments: [], resource_usage: {}, counts: index.counts };
    const snapshots = new Map(
      nodes.map((node) => [node, own.providers.map((one) => one.evaluate(node, context))]),
    );
    expect(policyOf({ view: () => view }).pickEligible(nodes, new Map())).toEqual(
      own.pickEligible(nodes, snapshots),
    );
  }
});

const nameOf = ({ id, generation, address }: { id: string; generation: number; address: string }) =>
  `${id} ${generation} ${address}`;
