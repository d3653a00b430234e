import { byAge, type Member, type ResourceUsage } from "@tenure/protocol";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { member, row } from "../../testing/rows.ts";
import { desiredHere, type PassInput, planPass } from "./plan.ts";
import { claimPolicyOf } from "./policy.ts";

const plan = ({
  members = [member("a"), member("b")],
  ...changes
}: Partial<Omit<PassInput, "members">> & { members?: Member[] }) =>
  planPass({
    me: "a",
    view: "ready",
    members: new Map(members.map((one) => [one.address, one])),
    deployments: [],
    resource_usage: {},
    policy: claimPolicyOf("deployment_count"),
    draining: false,
    unclaimedIntervals: () => 0,
    ...changes,
  });
const load = (cpu_percent: number, memory_percent = 0): ResourceUsage => ({
  cpu_percent,
  memory_percent,
  memory_mb: 0,
});
const ids = (terms: { id: string }[]) => terms.map(({ id }) => id);

describe("a row whose owner may not run it", () => {
  const zoned = row({ address: "b", selector: { zone: "x" } });
  const inZone = { labels: { zone: "x" } };

  test.each([
    [
      "is released by a node that may run it",
      { members: [member("a", inZone), member("b")] },
      ["b"],
    ],
    ["is left alone by a node that may not run it", { members: [member("a"), member("b")] }, []],
    [
      "is left alone if its owner may run it",
      { members: [member("a", inZone), member("b", inZone)] },
      [],
    ],
    [
      "is left alone by the policy none",
      { members: [member("a", inZone), member("b")], policy: undefined },
      [],
    ],
  ])("%s", (_, changes, release) => {
    expect(plan({ deployments: [zoned], ...changes }).release).toEqual(release);
  });
});

describe("claim", () => {
  test("R8: the nodes with the fewest deployments may claim", () => {
    const free = row();
    expect(plan({ deployments: [free] }).claim).toEqual([{ id: free.id, generation: 0 }]);
    expect(plan({ deployments: [free, row({ address: "b" })] }).claim).toHaveLength(1);
    expect(plan({ deployments: [free, row({ address: "a" })] }).claim).toEqual([]);
  });

  test("the claim window lists rows oldest first, by load alone, and none for the policy none or a draining node", () => {
    const [older, newer] = [row(), row()];
    const old = { window: [newer, older], unclaimedIntervals: () => 99 };
    expect(ids(plan(old).window)).toEqual([older.id, newer.id]);
    expect(plan({ ...old, deployments: [row({ address: "a" })] }).window).toEqual([]);
    expect(plan({ ...old, policy: undefined }).window).toEqual([]);
    expect(plan({ ...old, draining: true }).window).toEqual([]);
  });

  test("R5, R6: daemons, disabled and unknown rows neither count nor are candidates", () => {
    const deployments = [
      row({ type: "daemon", address: "a" }),
      row({ type: "cron", address: "a" }),
      row({ enabled: false, address: "a" }),
      row({ type: "daemon" }),
      row({ type: "cron" }),
      row({ enabled: false }),
    ];
    const free = row();
    expect(ids(plan({ deployments: [...deployments, free] }).claim)).toEqual([free.id]);
  });

  test.each([
    ["of policy none", { claim_policy: "none" }],
    ["that drains", { draining: true }],
    ["that is stopping", { tags: { node_unit: true, node_unit_leaving: true } }],
    ["that does not trust the package", { trusted_package_regexp: "" }],
    ["that lacks the label", { labels: {} }],
  ])("an idle node %s does not block other nodes", (_, traits) => {
    const mine = { labels: { zone: "x" } };
    const members = [member("a", mine), member("b", { ...mine, ...traits })];
    const deployments = [row({ selector: { zone: "x" } }), row({ address: "a" })];
    expect(plan({ members, deployments }).claim).toHaveLength(1);
  });

  test("a node that cannot run a row never claims it, even after many intervals", () => {
    const members = [member("a", { trusted_package_regexp: "" }), member("b")];
    expect(plan({ members, deployments: [row()], unclaimedIntervals: () => 99 }).claim).toEqual([]);
  });

  test("a row without an owner for three intervals may be claimed by any node that can run it", () => {
    const deployments = [row(), row({ address: "a" })];
    expect(plan({ deployments, unclaimedIntervals: () => 2 }).claim).toEqual([]);
    expect(plan({ deployments, unclaimedIntervals: () => 3 }).claim).toHaveLength(1);
  });

  test("candidates are ordered by updated_at, created_at, id", () => {
    const late = row({ updated_at: "2026-01-03T00:00:00.000Z" });
    const made2 = row({ created_at: "2026-01-02T00:00:00.000Z" });
    const [first, second] = [row(), row()];
    const deployments = [late, made2, second, first];
    expect(ids(plan({ deployments }).claim)).toEqual(ids([first, second, made2, late]));
  });

  test("a draining node claims nothing, and releases rows of lost nodes", () => {
    const deployments = [row(), row({ address: "gone" })];
    expect(plan({ deployments, draining: true })).toMatchObject({
      claim: [],
      reserve: [],
      release: ["gone"],
    });
  });
});

describe("resource_usage", () => {
  const weights = { cpu_weight: 3, memory_weight: 1 };
  const policy = claimPolicyOf("Resource_Usage", weights);
  const claims = (
    me: string,
    resource_usage: Record<string, ResourceUsage>,
    deployments = [row()],
  ) => plan({ me, policy, resource_usage, deployments }).claim.length === 1;

  test("the least busy node claims, by weighted shares", () => {
    const usage = { a: load(10, 50), b: load(20, 10) }; // 20 and 17.5
    expect([claims("a", usage), claims("b", usage)]).toEqual([false, true]);
  });

  test("nodes with equal load are compared by deployment count", () => {
    const usage = { a: load(10), b: load(10) };
    const deployments = [row(), row({ address: "a" })];
    expect([claims("a", usage, deployments), claims("b", usage, deployments)]).toEqual([
      false,
      true,
    ]);
  });

  test("a node without a sample never has the least load, and does not block other nodes", () => {
    expect([claims("a", { a: load(99) }), claims("b", { a: load(99) })]).toEqual([true, false]);
    expect(claims("a", {})).toBe(false);
  });
});

describe("release", () => {
  test("R9: a pass releases owners that are not members, except those of daemons, disabled and unknown rows", () => {
    const deployments = [
      row({ address: "gone" }),
      row({ address: "gone" }),
      row({ address: "b" }),
      row({ type: "daemon", address: "ghost" }),
      row({ type: "cron", address: "ghost" }),
      row({ enabled: false, address: "ghost" }),
    ];
    expect(plan({ deployments }).release).toEqual(["gone"]);
  });

  test("a pass releases nothing while the view is settling", () => {
    expect(
      plan({ view: "settling", deployments: [row(), row({ address: "gone" })] }),
    ).toMatchObject({
      release: [],
      claim: [],
      skipped: "settling",
    });
  });
});

describe("policy none", () => {
  test.each(["none", "NONE", "None"])("R1, R13, I2: %s neither claims nor releases", (name) => {
    const deployments = [row(), row({ address: "gone" }), row({ address: "b" })];
    const members = [member("a"), member("b", { draining: true })];
    expect(plan({ policy: claimPolicyOf(name), members, deployments })).toMatchObject({
      release: [],
      claim: [],
      reserve: [],
      skipped: "policy_none",
    });
  });

  test("R2: the rows it owns and its daemons are still desired", () => {
    const own = row({ address: "a" });
    const daemon = row({ type: "daemon" });
    const desired = desiredHere([own, daemon, row({ address: "b" })], member("a"));
    expect(desired.map(({ row: one }) => one.id)).toEqual([own.id, daemon.id]);
  });

  test("an unknown policy throws, and a registered one is used", () => {
    expect(() => claimPolicyOf("nome")).toThrow('unknown claim policy "nome"');
    const own = claimPolicyOf("deployment_count")!;
    expect(claimPolicyOf("Mine", undefined, new Map([["mine", own]]))).toBe(own);
  });
});

describe("invalid rows", () => {
  test("R11: a row of unknown type is listed as invalid and skipped; other rows are claimed", () => {
    const bad = row({ type: "cron" });
    const good = row();
    const result = plan({ deployments: [bad, good] });
    expect(result.invalid).toEqual([bad]);
    expect(ids(result.claim)).toEqual([good.id]);
    expect(desiredHere([bad], member("a"))).toEqual([]);
  });

  test("R12: a daemon with an address is listed, and runs on every node", () => {
    const daemon = row({ type: "daemon", address: "b" });
    expect(plan({ deployments: [daemon] }).addressedDaemons).toEqual([daemon]);
    expect(desiredHere([daemon], member("a"))).toHaveLength(1);
  });
});

describe("R7: desired rows", () => {
  test("an enabled daemon is desired once, on nodes that its selector matches", () => {
    const everywhere = row({ type: "daemon" });
    const deployments = [
      everywhere,
      row({ type: "daemon", enabled: false }),
      row({ type: "daemon", selector: { zone: "x" } }),
    ];
    expect(desiredHere(deployments, member("a")).map(({ row: one }) => one)).toEqual([everywhere]);
    expect(desiredHere(deployments, member("a", { labels: { zone: "x" } }))).toHaveLength(2);
  });

  test("a row that the node owns but may not run is desired with the reason, so that it can be reported", () => {
    const own = row({ address: "a", package_name: "evil" });
    const node = member("a", { trusted_package_regexp: "web@.*" });
    expect(desiredHere([own], node)).toEqual([{ row: own, refused: ["package_untrusted"] }]);
  });
});

describe("a draining owner", () => {
  const members = [member("a"), member("b", { draining: true })];
  test("its rows may be reserved by the nodes that may claim", () => {
    const theirs = row({ address: "b" });
    expect(plan({ members, deployments: [theirs] }).reserve).toEqual([
      { id: theirs.id, generation: 0 },
    ]);
    expect(plan({ members, deployments: [row({ address: "b", moving_to: "c" })] }).reserve).toEqual(
      [],
    );
    expect(plan({ deployments: [theirs] }).reserve).toEqual([]);
  });

  test("a row that it stopped for this node is claimed first", () => {
    const mine = row({ address: "b", moving_to: "a", move_state: "stopped", generation: 4 });
    const free = row({ updated_at: "2025-01-01T00:00:00.000Z" });
    expect(ids(plan({ members, deployments: [free, mine] }).claim)).toEqual([mine.id, free.id]);
    const waiting = row({ address: "b", moving_to: "a", move_state: "ready" });
    expect(plan({ members, deployments: [waiting] }).claim).toEqual([]);
  });
});

test("claims one after another leave the nodes within one deployment of each other", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 6 }),
      fc.array(fc.integer({ min: 0, max: 6 }), { maxLength: 30 }),
      fc.infiniteStream(fc.nat()),
      (nodes, owners, random) => {
        const names = Array.from({ length: nodes }, (_, n) => `n${n}`);
        const members = names.map((name) => member(name));
        // Only free rows: owned rows stay where they are, however unevenly.
        const deployments = owners.map(() => row());
        for (let left = deployments.length; left > 0; left--) {
          const willing = names.filter((me) => plan({ me, members, deployments }).claim.length > 0);
          expect(willing.length).toBeGreaterThan(0);
          const me = willing[random.next().value! % willing.length]!;
          const { id } = plan({ me, members, deployments }).claim[0]!;
          const taken = deployments.find((one) => one.id === id)!;
          taken.address = me;
          taken.generation++;
        }
        const counts = names.map(
          (name) => deployments.filter((one) => one.address === name).length,
        );
        expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
      },
    ),
    { numRuns: 60 },
  );
});

test("byAge is a total order: every node names the same candidates in the same order", () => {
  const rows = Array.from({ length: 20 }, () => row());
  expect([...rows].reverse().sort(byAge)).toEqual(rows);
});
