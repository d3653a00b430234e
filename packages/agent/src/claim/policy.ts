import type { ListedDeployment, ResourceUsage } from "@tenure/protocol";

// The specified interface for claim policies. Embedders can register policies of their own.

export type ClaimMetricKey = "deployment_count" | "resource_usage" | (string & {});

export interface ClaimMetricSnapshot {
  key: ClaimMetricKey;
  /** The smaller, the sooner this node-unit may claim. */
  value: number;
}

export interface ClaimMetricContext {
  deployments: readonly ListedDeployment[];
  /** Current samples by address; a node without one is absent. */
  resource_usage: Readonly<Record<string, ResourceUsage>>;
  /** Deployments per owner, counted once per pass. */
  counts?: ReadonlyMap<string, number>;
  /** Deployments per owner that are newer than its last sample can show. */
  recent?: ReadonlyMap<string, number>;
}

export interface ClaimMetricProvider {
  key: ClaimMetricKey;
  /** Returns the metric of one node-unit; Infinity when it is unknown, which is never the least. */
  evaluate(nodeUnitAddress: string, ctx: ClaimMetricContext): ClaimMetricSnapshot;
}

export interface ClaimPolicy {
  providers: ClaimMetricProvider[];
  /** Returns the node-units with the least metric: those that may claim. */
  pickEligible(nodeUnits: string[], snapshots: Map<string, ClaimMetricSnapshot[]>): string[];
}

type PickFrom = (nodeUnits: readonly string[], context: ClaimMetricContext) => string[];

const quickPicks = new WeakMap<
  ClaimPolicy["pickEligible"],
  { providers: ClaimPolicy["providers"]; pickFrom: PickFrom }
>();

/**
 * Picks as the policy would, without a snapshot of each node-unit: with 3,000 they are half of what a pass costs. Undefined for
 * a policy that is not built in, or is one with another provider or another choice.
 */
export function quickPickOf({ pickEligible, providers }: ClaimPolicy): PickFrom | undefined {
  const known = quickPicks.get(pickEligible);
  return known?.providers === providers ? known.pickFrom : undefined;
}

/** The name for no policy: the node runs what it owns, and neither claims nor releases (R1, R13). */
export const NO_POLICY = "none";

export interface ResourceWeights {
  cpu_weight: number;
  memory_weight: number;
}

/** Returns the policy of a name in any case; `undefined` for `none`. */
export function claimPolicyOf(
  name: string,
  weights: ResourceWeights = { cpu_weight: 1, memory_weight: 1 },
  registered: ReadonlyMap<string, ClaimPolicy> = new Map(),
): ClaimPolicy | undefined {
  switch (name.toLowerCase()) {
    case NO_POLICY:
      return undefined;
    case "deployment_count":
      return leastOf([deploymentCount]);
    case "resource_usage":
      return leastOf([resourceUsage(weights), deploymentCount]);
    default: {
      const policy = registered.get(name.toLowerCase());
      if (!policy) throw new Error(`unknown claim policy ${JSON.stringify(name)}`);
      return policy;
    }
  }
}

/** Whether `claimPolicyOf` has a policy of its own under the name: it reads counts and samples, and no rows. */
export const isBuiltInPolicy = (name: string): boolean =>
  [NO_POLICY, "deployment_count", "resource_usage"].includes(name.toLowerCase());

/** Counts the enabled deployments per owner. Daemons run on every node, so they do not count as load (R5, R6). */
export function countByAddress(
  deployments: readonly Pick<ListedDeployment, "type" | "enabled" | "address">[],
): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { type, enabled, address } of deployments) {
    if (type === "deployment" && enabled && address !== "")
      counts.set(address, (counts.get(address) ?? 0) + 1);
  }
  return counts;
}

type Metric = (address: string, context: ClaimMetricContext) => number;

interface BuiltInProvider extends ClaimMetricProvider {
  measure: Metric;
}

const provider = (key: string, measure: Metric): BuiltInProvider => ({
  key,
  measure,
  evaluate: (address, context) => ({ key, value: measure(address, context) }),
});

const deploymentCount = provider(
  "deployment_count",
  (address, { deployments, counts = countByAddress(deployments) }) => counts.get(address) ?? 0,
);

/**
 * The assumed cost of a deployment that no sample shows yet, in percent of the machine. Samples are seconds old and a node
 * claims many times per second: without this a whole batch went to the node that was least busy before it.
 */
const RECENT_PERCENT = 5;

/** The weighted mean of processor and memory use, in percent. */
function resourceUsage({ cpu_weight, memory_weight }: ResourceWeights): BuiltInProvider {
  const total = cpu_weight + memory_weight;
  return provider("resource_usage", (address, { resource_usage, recent }) => {
    const sample = Object.hasOwn(resource_usage, address) ? resource_usage[address] : undefined;
    if (!sample) return Number.POSITIVE_INFINITY;
    const used = (sample.cpu_percent * cpu_weight + sample.memory_percent * memory_weight) / total;
    return used + (recent?.get(address) ?? 0) * RECENT_PERCENT;
  });
}

/** Compares by the first metric, and equal nodes by the next. Nodes equal in all metrics are all eligible. */
function leastOf(providers: BuiltInProvider[]): ClaimPolicy {
  function pick(
    nodeUnits: readonly string[],
    metricOf: (node: string, provider: BuiltInProvider, index: number) => number,
  ): string[] {
    let left = [...nodeUnits];
    for (const [index, provider] of providers.entries()) {
      const metrics = left.map((node) => metricOf(node, provider, index));
      const least = metrics.reduce((a, b) => (b < a ? b : a), Number.POSITIVE_INFINITY);
      // A node with an unknown first metric is never the least; if all are unknown, no node may claim.
      if (index === 0 && !Number.isFinite(least)) return [];
      left = left.filter((_, at) => metrics[at] === least);
    }
    return left;
  }

  const policy: ClaimPolicy = {
    providers,
    pickEligible: (nodeUnits, snapshots) =>
      pick(nodeUnits, (node, _, index) => metricOf(snapshots, node, index)),
  };
  const pickFrom: PickFrom = (nodeUnits, context) =>
    pick(nodeUnits, (node, { measure }) => measure(node, context));
  quickPicks.set(policy.pickEligible, { providers, pickFrom });
  return policy;
}

const metricOf = (
  snapshots: Map<string, ClaimMetricSnapshot[]>,
  node: string,
  index: number,
): number => snapshots.get(node)?.[index]?.value ?? Number.POSITIVE_INFINITY;
