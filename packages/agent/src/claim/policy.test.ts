import fc from "fast-check";
import { expect, test } from "vitest";
import { member, row } from "../../testing/rows.ts";
import { planPass } from "./plan.ts";
import { type ClaimMetricContext, claimPolicyOf, quickPickOf } from "./policy.ts";

const NODES = ["a", "b", "c", "d", "e"];
const sample = fc.record({ cpu_percent: fc.nat(3), memory_percent: fc.nat(3) });
const context = fc.record({
  counts: fc.dictionary(fc.constantFrom(...NODES), fc.nat(2)),
  samples: fc.dictionary(fc.constantFrom(...NODES), sample),
  recent: fc.dictionary(fc.constantFrom(...NODES), fc.nat(2)),
});

test.each([
  "deployment_count",
  "resource_usage",
])("%s picks the same nodes with and without snapshots", (name) => {
  const policy = claimPolicyOf(name)!;
  fc.assert(
    fc.property(context, fc.subarray(NODES), ({ counts, samples, recent }, nodes) => {
      const given: ClaimMetricContext = {
        deployments: [],
        counts: new Map(Object.entries(counts)),
        resource_usage: Object.fromEntries(
          Object.entries(samples).map(([node, one]) => [node, { ...one, memory_mb: 0 }]),
        ),
        recent: new Map(Object.entries(recent)),
      };
      const snapshots = new Map(
        nodes.map((node) => [node, policy.providers.map((one) => one.evaluate(node, given))]),
      );
      expect(quickPickOf(policy)!(nodes, given)).toEqual(policy.pickEligible(nodes, snapshots));
    }),
  );
});

test("a built-in policy with another choice or another provider is evaluated as it is", () => {
  const policy = claimPolicyOf("deployment_count")!;
  const onlyB = { ...policy, pickEligible: () => ["b"] };
  const most = {
    ...policy,
    providers: [
      { key: "most", evaluate: (node: string) => ({ key: "most", value: node === "b" ? 0 : 1 }) },
    ],
  };
  for (const changed of [onlyB, most]) {
    const { claimants } = planPass({
      ...{ me: "a", view: "ready", deployments: [row()], resource_usage: {}, draining: false },
      members: new Map(["a", "b"].map((one) => [one, member(one)])),
      ...{ policy: changed, unclaimedIntervals: () => 9 },
    });
    expect(claimants).toEqual(["b"]);
  }
});
