import { describe, expect, test } from "vitest";
import { COSTS } from "./costs.ts";
import { createScaleFleet, type FleetOptions, rowsOf } from "./fleet.ts";
import { converge, failOver, type Outcome, restOneMinute } from "./scenarios.ts";
import { createVersionedTable } from "./table.ts";
import { messagesOf } from "./tally.ts";

// A small fleet of docs/scale.md. Time is virtual, so what it needs does not depend on the machine.

const FLEET: FleetOptions = { nodes: 60, deployments: 600, instances: 2, seed: 1, costs: COSTS };
const LOST = 6;
/** The machine may be many times slower than it looks. */
const LIMIT_MS = 600_000;
const SHARE = FLEET.deployments / FLEET.nodes;

describe("a fleet of 60 node-units and 600 deployments", { timeout: LIMIT_MS }, () => {
  test.each([
    1, 2, 3,
  ])("finds an owner for everything, evenly and with few words (seed %i)", async (seed) => {
    expect(faultsOf(await converge({ ...FLEET, seed }), FLEET.deployments)).toEqual([]);
  });

  test("takes over what lost nodes had", async () => {
    expect(faultsOf(await failOver(FLEET, 1), SHARE)).toEqual([]);
    expect(faultsOf(await failOver(FLEET, LOST), LOST * SHARE)).toEqual([]);
  });

  test("at rest each node asks once per interval, and hears nothing but that nothing changed", async () => {
    const { tally, nodes } = await restOneMinute(FLEET);
    expect(tally).toMatchObject({ listRows: 0, claims: 0, conflicts: 0, tells: 0, hostEvents: 0 });
    expect(tally.lists / nodes).toBeGreaterThan(10);
    expect(tally.lists / nodes).toBeLessThan(15);
  });

  test("the same seed is the same run, another is another", async () => {
    const [first, again] = [await failOver(FLEET, LOST), await failOver(FLEET, LOST)];
    expect(again).toEqual(first);
    expect(await failOver({ ...FLEET, seed: 2 }, LOST)).not.toEqual(first);
  });

  test("does with shared lists exactly what it does with the agent's own list and policy", async () => {
    const own: FleetOptions = { ...FLEET, lists: "subset" };
    expect(await converge(own)).toEqual(await converge(FLEET));
    expect(await failOver(own, LOST)).toEqual(await failOver(FLEET, LOST));
  });

  test.each([
    1, 2, 3,
  ])("claims the same rows at the same moments with every row in each list (seed %i)", async (seed) => {
    const fleet = { ...FLEET, seed, costs: EQUAL_ANSWERS };
    for (const lost of [0, LOST]) {
      const found = await claimsOf({ ...fleet, lists: "subset" }, lost);
      expect(found.claims).toEqual((await claimsOf({ ...fleet, lists: "whole" }, lost)).claims);
      expect(found.claims).toEqual((await claimsOf({ ...fleet, lists: "shared" }, lost)).claims);
      expect(found.claims.length).toBeGreaterThanOrEqual(
        lost > 0 ? 2 * LOST * SHARE : FLEET.deployments,
      );
    }
  });

  test("claims everything with lists that are cut, and sends about as much as with the agent's own lists", async () => {
    const costs = { ...COSTS, answerBytes: [1_500, 1_500] as [number, number] };
    const shared = await converge({ ...FLEET, costs });
    const own = await converge({ ...FLEET, costs, lists: "subset" });
    for (const { tally } of [shared, own]) {
      expect(tally.claims).toBe(FLEET.deployments);
      expect(tally.cut).toBeGreaterThan(20);
    }
    expect(shared.tally.bytes / own.tally.bytes).toBeGreaterThan(0.9);
    expect(shared.tally.bytes / own.tally.bytes).toBeLessThan(1.1);
  });
});

/** Then every kind of list takes the same time. */
const EQUAL_ANSWERS = { ...COSTS, listRowMs: 0, listDemandMs: 0, listOwnerMs: 0 };

/** Every change of an owner, with its moment. */
async function claimsOf(options: FleetOptions, lost: number) {
  const fleet = createScaleFleet(options, lost > 0 ? "owned" : "empty");
  await fleet.timeline.run(10_000);
  const from = fleet.table.head();
  if (lost > 0) fleet.lose(lost);
  else fleet.server.add(rowsOf(options.deployments, () => ""));
  await fleet.timeline.run(40_000);
  const changes = fleet.table.changes(from, fleet.table.head());
  const claims = changes.map(({ id, after }) => [id, after.address, after.updated_at].join(" "));
  return { claims, bytes: fleet.tally.bytes };
}

describe("more nodes than can look at the same rows", { timeout: LIMIT_MS }, () => {
  test("claim side by side, evenly", async () => {
    const crowd = { ...FLEET, nodes: 700, deployments: 1_400 };
    const outcome = await converge(crowd);
    expect(faultsOf(outcome, crowd.deployments)).toEqual([]);
    // 2.9 s; and 5.8 s when each waits for its turn.
    expect(outcome.tookMs).toBeLessThan(4_000);
  });

  test("claim the same rows at the same moments with every kind of list", async () => {
    const crowd = { ...FLEET, nodes: 540, deployments: 600, costs: EQUAL_ANSWERS };
    const [shared, subset, whole] = [
      await claimsOf({ ...crowd, lists: "shared" }, 0),
      await claimsOf({ ...crowd, lists: "subset" }, 0),
      await claimsOf({ ...crowd, lists: "whole" }, 0),
    ];
    expect(subset.claims).toEqual(whole.claims);
    expect(shared).toEqual(subset);
  });
});

test("the shared table counts what each of thousands of nodes owns", () => {
  const table = createVersionedTable();
  const addresses = Array.from({ length: 5_000 }, (_, nth) => `node-${nth}`);
  for (const row of rowsOf(5_000, (nth) => addresses[nth]!)) table.insert(row);
  expect(table.at(table.head()).least(addresses)).toHaveLength(5_000);
});

describe("planted bugs", { timeout: LIMIT_MS }, () => {
  test.each([
    ["an arbiter that believes whoever claims", { claimsAreBlind: true }, /claims/],
    ["nodes that claim whatever the metric says", { anybodyClaims: true }, /spread/],
    ["claims that wake everybody", { claimsWakeEverybody: true }, /messages/],
  ])("%s: caught", async (_, planted, fault) => {
    const faults = faultsOf(await converge({ ...FLEET, planted }), FLEET.deployments);
    expect(faults.join("\n")).toMatch(fault);
  });
});

/** What a fleet must hold to, whatever its size and seed. */
function faultsOf({ tookMs, spread, tally, nodes }: Outcome, moved: number): string[] {
  const messages = messagesOf(tally);
  const limits: [what: string, holds: boolean][] = [
    [`took ${tookMs} ms`, (tookMs ?? Number.POSITIVE_INFINITY) < 30_000],
    [`spread ${spread}`, spread <= 1],
    [`${tally.claims} claims of ${moved} rows`, tally.claims === moved],
    [`${tally.conflicts} conflicts`, tally.conflicts <= moved / 10],
    // Each row: a claim, a look before and after it, and word of it; each node: that something happened.
    [`${messages} messages`, messages <= 12 * moved + nodes * (MESSAGES_PER_NODE + LOST)],
    [`${tally.late} late`, tally.late === 0],
  ];
  return limits.filter(([, holds]) => !holds).map(([what]) => what);
}

const MESSAGES_PER_NODE = 24;
