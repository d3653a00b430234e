import { type AffinityOutcome, serves } from "@tenure/protocol";
import type { Random } from "../../kernel/random.ts";

/** A node as selection sees it, from this instance's snapshot. The store may refuse the choice. */
export interface Candidate {
  readonly nodeId: string;
  readonly online: boolean;
  readonly draining: boolean;
  /** Tenants whose jobs the node runs. */
  readonly tenants?: readonly string[] | undefined;
  readonly pools: ReadonlySet<string>;
  readonly services: ReadonlySet<string>;
  readonly capacity: number;
  /** Slots in use as far as this instance knows: the store's last answer, and slots requested since. */
  readonly reserved: number;
  /** Services the node reported unavailable. */
  readonly unavailable: ReadonlySet<string>;
}

export interface Wanted {
  readonly tenant: string;
  readonly pool: string;
  readonly service?: string | undefined;
  /** Nodes of the job's earlier attempts, used only when there is no other. */
  readonly former?: ReadonlySet<string> | undefined;
}

/** Why a node cannot take a job; the first that applies is reported. */
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
 * Picks the node to try first: one that has not had this job, then the least reserved share, then at random among equals.
 * One pass without sorting: a refusal by the store is rare, and the caller picks again.
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
    // The n-th equal replaces with probability 1/n, so that each is equally likely.
    if (equals === 1 || random.fraction() * equals < 1) best = node;
  }
  return best;
}

/** Counts the nodes that cannot take the job by reason. */
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

/** A share is below 1, so that nodes of earlier attempts come last. */
const rankOf = (node: Candidate, { former }: Wanted): number =>
  (former?.has(node.nodeId) ? 1 : 0) + node.reserved / node.capacity;

/** `2 full, 1 draining`: the detail of `NO_AVAILABLE_NODE`. Does not reveal how many nodes other tenants have. */
export function exclusionText(nodes: Iterable<Candidate>, wanted: Wanted): string {
  const { other_tenant: others, ...counts } = countExclusions(nodes, wanted);
  const texts = Object.entries(counts).map(([reason, count]) => `${count} ${reason}`);
  if (texts.length > 0) return texts.join(", ");
  return others ? `no node serves the tenant ${wanted.tenant}` : "there is no node at all";
}

/** Where a job goes because of its turn. */
export type TurnChoice =
  | { go: "there" }
  /** The turn's node is full: a slot may be free in a moment. */
  | { go: "wait" }
  /** The turn's node cannot take the job; any other may. */
  | { go: "anywhere"; outcome: AffinityOutcome };

/**
 * Uses the turn's node when it is online and in the job's pool. While it has no free slot the job waits for it as long as
 * `isPatient`, then goes to any node. A node on which the job has failed is not tried again.
 */
export function chooseByTurn(
  node: Candidate | undefined,
  wanted: Wanted,
  { isPatient }: { isPatient: boolean },
): TurnChoice {
  if (!node?.online) return { go: "anywhere", outcome: "offline" };
  if (!node.pools.has(wanted.pool)) return { go: "anywhere", outcome: "not_in_pool" };
  if (wanted.former?.has(node.nodeId)) return { go: "anywhere", outcome: "no_slot" };
  const exclusion = exclusionOf(node, wanted);
  if (!exclusion) return { go: "there" };
  // A node that is draining, or no longer serves this tenant, takes nothing new, however long the job waits.
  if (exclusion === "draining" || exclusion === "other_tenant")
    return { go: "anywhere", outcome: "offline" };
  return exclusion === "full" && isPatient
    ? { go: "wait" }
    : { go: "anywhere", outcome: "no_slot" };
}
