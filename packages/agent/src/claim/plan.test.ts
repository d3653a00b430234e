import type { ListedDeployment, Member, ResourceUsage } from "@tenure/protocol";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byAge, desiredHere, type PassInput, planPass } from "./plan.ts";
import { claimPolicyOf } from "./policy.ts";

const member = (address: string, changes: Partial<Member> = {}): Member => ({
  address,
  name: address,
  instance_id: "i",
  epoch: 1,
  claim_policy: "deployment_count",
  labels: {},
  trusted_package_regexp: ".*",
  custom_command: false,
  draining: false,
  tags: { node_unit: true },
  joined_at: "2026-01-01T00:00:00.000Z",
  ...changes,
});
let made = 0;
const row = (changes: Partial<ListedDeployment> = {}): ListedDeployment => ({
  id: `00000000-0000-4000-8000-${String(++made).padStart(12, "0")}`,
  name: `d${made}`,
  package_name: "web",
  package_version: "1.0.0",
  command: "",
  type: "deployment",
  address: "",
  enabled: true,
  selector: {},
  lost_after_ms: 0,
  generation: 0,
  revision: 1,
  moving_to: "",
  move_state: "",
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at: "2026-01-01T00:00:00.000Z",
  ...changes,
});
const plan = (changes: Partial<PassInput>) =>
  planPass({
    me: "a",
    view: "ready",
    members: [member("a"), member("b")],
    deployments: [],
    resource_usage: {},
    policy: claimPolicyOf("deployment_count"),
    draining: false,
    waitedIntervals: () => 0,
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
    ["is asked for by a node that may", { members: [member("a", inZone), member("b")] }, ["b"]],
    ["is left by a node that may not", { members: [member("a"), member("b")] }, []],
    ["is left where its owner may", { members: [member("a", inZone), member("b", inZone)] }, []],
    [
      "is left by the policy none",
      { members: [member("a", inZone), member("b")], policy: undefined },
      [],
    ],
  ])("%s", (_, changes, release) => {
    expect(plan({ deployments: [zoned], ...changes }).release).toEqual(release);
  });
});

describe("who may claim", () => {
  test("R8: the node with the fewest deployments; equal ones all may", () => {
    const free = row();
    expect(plan({ deployments: [free] }).claim).toEqual([{ id: free.id, generation: 0 }]);
    expect(plan({ deployments: [free, row({ address: "b" })] }).claim).toHaveLength(1);
    expect(plan({ deployments: [free, row({ address: "a" })] }).claim).toEqual([]);
  });

  test("aside of what all look at: oldest first, by the metric alone, and nothing for a node of policy none", () => {
    const [older, newer] = [row(), row()];
    const aside = [newer, older];
    const patient = { aside, waitedIntervals: () => 99 };
    expect(ids(plan(patient).aside)).toEqual([older.id, newer.id]);
    expect(plan({ ...patient, deployments: [row({ address: "a" })] }).aside).toEqual([]);
    expect(plan({ ...patient, policy: undefined }).aside).toEqual([]);
    expect(plan({ ...patient, draining: true }).aside).toEqual([]);
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
  ])("an idle node %s keeps nobody from claiming", (_, traits) => {
    const mine = { labels: { zone: "x" } };
    const members = [member("a", mine), member("b", { ...mine, ...traits })];
    const deployments = [row({ selector: { zone: "x" } }), row({ address: "a" })];
    expect(plan({ members, deployments }).claim).toHaveLength(1);
  });

  test("a node that cannot run the row never asks for it, however long it waits", () => {
    const members = [member("a", { trusted_package_regexp: "" }), member("b")];
    expect(plan({ members, deployments: [row()], waitedIntervals: () => 99 }).claim).toEqual([]);
  });

  test("a row that nobody took for three intervals may be claimed by any node that can run it", () => {
    const deployments = [row(), row({ address: "a" })];
    expect(plan({ deployments, waitedIntervals: () => 2 }).claim).toEqual([]);
    expect(plan({ deployments, waitedIntervals: () => 3 }).claim).toHaveLength(1);
  });

  test("candidates are named oldest first: updated_at, created_at, id", () => {
    const late = row({ updated_at: "2026-01-03T00:00:00.000Z" });
    const made2 = row({ created_at: "2026-01-02T00:00:00.000Z" });
    const [first, second] = [row(), row()];
    const deployments = [late, made2, second, first];
    expect(ids(plan({ deployments }).claim)).toEqual(ids([first, second, made2, late]));
  });

  test("a draining node claims nothing and still releases", () => {
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

  test("equal values are broken by count", () => {
    const usage = { a: load(10), b: load(10) };
    const deployments = [row(), row({ address: "a" })];
    expect([claims("a", usage, deployments), claims("b", usage, deployments)]).toEqual([
      false,
      true,
    ]);
  });

  test("a missing sample is never the best, and holds nobody up", () => {
    expect([claims("a", { a: load(99) }), claims("b", { a: load(99) })]).toEqual([true, false]);
    expect(claims("a", {})).toBe(false);
  });
});

describe("what is lost", () => {
  test("R9: addresses of deployments that are not in the view; never those of daemons", () => {
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

  test("nothing, while the view is settling", () => {
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

  test("R2: what it owns and its daemons are still desired", () => {
    const own = row({ address: "a" });
    const daemon = row({ type: "daemon" });
    const desired = desiredHere([own, daemon, row({ address: "b" })], member("a"));
    expect(desired.map(({ row: one }) => one.id)).toEqual([own.id, daemon.id]);
  });

  test("an unknown policy is an error, and a registered one is used", () => {
    expect(() => claimPolicyOf("nome")).toThrow('no claim policy "nome"');
    const own = claimPolicyOf("deployment_count")!;
    expect(claimPolicyOf("Mine", undefined, new Map([["mine", own]]))).toBe(own);
  });
});

describe("bad rows", () => {
  test("R11: an unknown type is named and skipped, the rest goes on", () => {
    const bad = row({ type: "cron" });
    const good = row();
    const result = plan({ deployments: [bad, good] });
    expect(result.invalid).toEqual([bad]);
    expect(ids(result.claim)).toEqual([good.id]);
    expect(desiredHere([bad], member("a"))).toEqual([]);
  });

  test("R12: a daemon with an address is named, and runs everywhere all the same", () => {
    const daemon = row({ type: "daemon", address: "b" });
    expect(plan({ deployments: [daemon] }).strayAddress).toEqual([daemon]);
    expect(desiredHere([daemon], member("a"))).toHaveLength(1);
  });
});

describe("R7: what runs here", () => {
  test("each enabled daemon once, where its selector admits the node", () => {
    const everywhere = row({ type: "daemon" });
    const deployments = [
      everywhere,
      row({ type: "daemon", enabled: false }),
      row({ type: "daemon", selector: { zone: "x" } }),
    ];
    expect(desiredHere(deployments, member("a")).map(({ row: one }) => one)).toEqual([everywhere]);
    expect(desiredHere(deployments, member("a", { labels: { zone: "x" } }))).toHaveLength(2);
  });

  test("what it owns but may not run is desired with the reason, so that it can be reported", () => {
    const own = row({ address: "a", package_name: "evil" });
    const node = member("a", { trusted_package_regexp: "web@.*" });
    expect(desiredHere([own], node)).toEqual([{ row: own, refused: ["package_untrusted"] }]);
  });
});

describe("a drain of another node", () => {
  const members = [member("a"), member("b", { draining: true })];
  test("its rows may be reserved, by the same eligibility", () => {
    const theirs = row({ address: "b" });
    expect(plan({ members, deployments: [theirs] }).reserve).toEqual([
      { id: theirs.id, generation: 0 },
    ]);
    expect(plan({ members, deployments: [row({ address: "b", moving_to: "c" })] }).reserve).toEqual(
      [],
    );
    expect(plan({ deployments: [theirs] }).reserve).toEqual([]);
  });

  test("one that is stopped for us is claimed first", () => {
    const mine = row({ address: "b", moving_to: "a", move_state: "stopped", generation: 4 });
    const free = row({ updated_at: "2025-01-01T00:00:00.000Z" });
    expect(ids(plan({ members, deployments: [free, mine] }).claim)).toEqual([mine.id, free.id]);
    const waiting = row({ address: "b", moving_to: "a", move_state: "ready" });
    expect(plan({ members, deployments: [waiting] }).claim).toEqual([]);
  });
});

test("however a fleet starts, one claim after another ends within one of each other", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 6 }),
      fc.array(fc.integer({ min: 0, max: 6 }), { maxLength: 30 }),
      fc.infiniteStream(fc.nat()),
      (nodes, owners, chance) => {
        const names = Array.from({ length: nodes }, (_, n) => `n${n}`);
        const members = names.map((name) => member(name));
        // Only free rows: what is already owned stays where it is, however uneven that is.
        const deployments = owners.map(() => row());
        for (let left = deployments.length; left > 0; left--) {
          const willing = names.filter((me) => plan({ me, members, deployments }).claim.length > 0);
          expect(willing.length).toBeGreaterThan(0);
          const me = willing[chance.next().value! % willing.length]!;
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

test("the order is total: every node names the same candidates in the same order", () => {
  const rows = Array.from({ length: 20 }, () => row());
  expect([...rows].reverse().sort(byAge)).toEqual(rows);
});
