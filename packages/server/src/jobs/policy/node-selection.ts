import { serves } from "@tenure/protocol";
import type { Random } from "../../kernel/random.ts";

/** A node as selection sees it, from the snapshot this instance keeps. The store may refuse the choice. */
export interface Candidate {
  readonly nodeId: string;
  readonly online: boolean;
  readonly draining: boolean;
  /** Whose jobs it runs. */
  readonly tenants?: readonly string[] | undefined;
  readonly pools: ReadonlySet<string>;
  readonly services: ReadonlySet<string>;
  readonly capacity: number;
  /** Slots taken, as this instance believes: the store's last answer, and what was asked for since. */
  readonly reserved: number;
  /** Services the node said it cannot serve now. */
  readonly unavailable: ReadonlySet<string>;
}

export interface Wanted {
  readonly tenant: string;
  readonly pool: string;
  readonly service?: string | undefined;
  /** Nodes of the job's former attempts: only when nobody else is there. */
  readonly former?: ReadonlySet<string> | undefined;
}

/** Why a node cannot take a job, the first that applies. */
export const EXCLUSIONS = [
  "other_tenant",
  "offline",
  "not_in_pool",
  "draining",
  "service_missing",
  "service_unavailable",
  "full",
] as const;
export type Exclusion = (typeof EXCLUSIONS)[number];

export function exclusionOf(
  node: Candidate,
  { tenant, pool, service }: Wanted,
): Exclusion | undefined {
  if (!serves(node.tenants, tenant)) return "other_tenant";
  if (!node.online) return "offline";
  if (!node.pools.has(pool)) return "not_in_pool";
  if (node.draining) return "draining";
  if (service !== undefined) {
    if (!node.services.has(service)) return "service_missing";
    if (node.unavailable.has(service)) return "service_unavailable";
  }
  return node.reserved >= node.capacity ? "full" : undefined;
}

/**
 * The node to try first: one that has not had this job, then the least reserved share, then chance among
 * equals. One pass and no sorting: a refusal is rare, and is answered by asking again.
 */
export function pickNode<Node extends Candidate>(
  nodes: Iterable<Node>,
  wanted: Wanted,
  random: Random,
): Node | undefined {
  let best: Node | undefined;
  let bestRank = Number.POSITIVE_INFINITY;
  let equals = 0;
  for (const node of nodes) {
    if (exclusionOf(node, wanted)) continue;
    const rank = rankOf(node, wanted);
    if (rank > bestRank) continue;
    equals = rank < bestRank ? 1 : equals + 1;
    bestRank = rank;
    // The n-th equal replaces with a chance of 1/n: every one of them is as likely as the others.
    if (equals === 1 || random.fraction() * equals < 1) best = node;
  }
  return best;
}

/** How many nodes were left out, and why: what `NO_AVAILABLE_NODE` tells. */
export function countExclusions(
  nodes: Iterable<Candidate>,
  wanted: Wanted,
): Partial<Record<Exclusion, number>> {
  const counts: Partial<Record<Exclusion, number>> = {};
  for (const node of nodes) {
    const exclusion = exclusionOf(node, wanted);
    if (exclusion) counts[exclusion] = (counts[exclusion] ?? 0) + 1;
  }
  return counts;
}

/** A share is below 1, so whoever had the job before comes after everybody else. */
const rankOf = (node: Candidate, { former }: Wanted): number =>
  (former?.has(node.nodeId) ? 1 : 0) + node.reserved / node.capacity;
