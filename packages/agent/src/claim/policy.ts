import type { ListedDeployment, ResourceUsage } from "@tenure/protocol";

// The seed's interface. Whoever wants another measure registers a policy of their own.

export type ClaimMetricKey = "deployment_count" | "resource_usage" | (string & {});

export interface ClaimMetricSnapshot {
  key: ClaimMetricKey;
  /** The smaller, the sooner this node-unit may claim. */
  value: number;
}

export interface ClaimMetricContext {
  deployments: readonly ListedDeployment[];
  /** Fresh samples by address. Whoever is missing has none. */
  resource_usage: Readonly<Record<string, ResourceUsage>>;
  /** The same for every candidate of a pass, so that a long list is counted once. */
  counts?: ReadonlyMap<string, number>;
  /** Deployments per owner that came too lately for its sample to show them. */
  recent?: ReadonlyMap<string, number>;
}

export interface ClaimMetricProvider {
  key: ClaimMetricKey;
  /** The metric of one node-unit. Infinity when it cannot be known: that is never the least. */
  evaluate(nodeUnitAddress: string, ctx: ClaimMetricContext): ClaimMetricSnapshot;
}

export interface ClaimPolicy {
  providers: ClaimMetricProvider[];
  /** Those who may claim: everybody with the least metric. */
  pickEligible(nodeUnits: string[], snapshots: Map<string, ClaimMetricSnapshot[]>): string[];
}

/** `none`: no policy at all. The node runs what it owns, and neither claims nor releases (R1, R13). */
export const NO_POLICY = "none";

export interface ResourceWeights {
  cpu_weight: number;
  memory_weight: number;
}

/** The policy of a name, however it is written; `undefined` for `none`. */
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
      if (!policy) throw new Error(`there is no claim policy ${JSON.stringify(name)}`);
      return policy;
    }
  }
}

/** Enabled deployments that a node-unit owns. Daemons run everywhere and say nothing about load (R5, R6). */
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

const deploymentCount: ClaimMetricProvider = {
  key: "deployment_count",
  evaluate: (address, { deployments, counts = countByAddress(deployments) }) => ({
    key: "deployment_count",
    value: counts.get(address) ?? 0,
  }),
};

/**
 * What one more deployment is taken to cost until a sample shows it, in percent of the machine. Samples are seconds old,
 * and a node claims many times in a second: without this a whole batch went to the node that was least busy before it.
 */
const RECENT_PERCENT = 5;

/** Shares of the machine, weighted. Weights are normalised: only their relation means something. */
function resourceUsage({ cpu_weight, memory_weight }: ResourceWeights): ClaimMetricProvider {
  const total = cpu_weight + memory_weight;
  return {
    key: "resource_usage",
    evaluate(address, { resource_usage, recent }) {
      const sample = Object.hasOwn(resource_usage, address) ? resource_usage[address] : undefined;
      const value = sample
        ? (sample.cpu_percent * cpu_weight + sample.memory_percent * memory_weight) / total +
          (recent?.get(address) ?? 0) * RECENT_PERCENT
        : Number.POSITIVE_INFINITY;
      return { key: "resource_usage", value };
    },
  };
}

/** Compares by the first metric; equal ones by the next. Whoever is equal in all is eligible too. */
function leastOf(providers: ClaimMetricProvider[]): ClaimPolicy {
  return {
    providers,
    pickEligible(nodeUnits, snapshots) {
      let left = nodeUnits;
      for (const index of providers.keys()) {
        const metrics = left.map((node) => metricOf(snapshots, node, index));
        const least = metrics.reduce((a, b) => (b < a ? b : a), Number.POSITIVE_INFINITY);
        // Nobody with an unknown first metric is the least; if nobody's is known, nobody may claim by it.
        if (index === 0 && !Number.isFinite(least)) return [];
        left = left.filter((_, at) => metrics[at] === least);
      }
      return left;
    },
  };
}

const metricOf = (
  snapshots: Map<string, ClaimMetricSnapshot[]>,
  node: string,
  index: number,
): number => snapshots.get(node)?.[index]?.value ?? Number.POSITIVE_INFINITY;
