import {
  ADDRESS_SELECTOR,
  byAge,
  CLAIM_CANDIDATES_MAX,
  type DeploymentTerm,
  demandKey,
  isDeploymentType,
  isLeaving,
  type ListedDeployment,
  type MatchWhole,
  type Member,
  type NodeTraits,
  type ResourceUsage,
  type Unfitness,
  unfitness,
  type ViewState,
} from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import {
  type ClaimMetricContext,
  type ClaimMetricSnapshot,
  type ClaimPolicy,
  countByAddress,
  quickPickOf,
} from "./policy.ts";

/** The input of a pass. */
export interface PassInput {
  me: string;
  view: ViewState;
  members: ReadonlyMap<string, Member>;
  /** All rows, or only those that may need an action: then `counts` must be given too. */
  deployments: readonly ListedDeployment[];
  /** All owners, when their rows are not among `deployments`. */
  owners?: Iterable<string>;
  /** Free rows that few other nodes see. */
  window?: readonly ListedDeployment[];
  /** Deployments per owner; counted from `deployments` by default. */
  counts?: ReadonlyMap<string, number>;
  resource_usage: Readonly<Record<string, ResourceUsage>>;
  /** Deployments per owner that are newer than its last sample can show. */
  recent?: () => ReadonlyMap<string, number>;
  /** `undefined`: the policy `none`. */
  policy: ClaimPolicy | undefined;
  draining: boolean;
  /** For how many intervals this node has seen the row without an owner, in its present generation. */
  unclaimedIntervals: (row: ListedDeployment) => number;
  matches?: MatchWhole;
}

/** What the pass proposes. The server's statements decide; at most one claim or reservation succeeds. */
export interface PassPlan {
  /** Owners that are not connected, or that may not run a row of theirs which this node may run. */
  release: string[];
  /** In order of preference; one call may name only the first `CLAIM_CANDIDATES_MAX`. */
  claim: DeploymentTerm[];
  /** Rows to claim instead while other nodes come first in the claim order. */
  window: DeploymentTerm[];
  /** The nodes with the same right to the first free candidate, this node included. */
  claimants: string[];
  /** Whether rows are free that this node can run, even if it may not claim them now. */
  waiting: boolean;
  /** Rows of draining owners to take over. */
  reserve: DeploymentTerm[];
  /** Rows with an unknown type. */
  invalid: ListedDeployment[];
  /** Daemons with an address, which is ignored. */
  addressedDaemons: ListedDeployment[];
  skipped: "settling" | "policy_none" | undefined;
}

/** After so many intervals without an owner, a row may be claimed by any node that can run it, regardless of load. */
export const UNCLAIMED_INTERVALS_MAX = 3;

/** Plans a pass from the members and the rows. Pure: the server's statements decide whether the plan happens. */
export function planPass(input: PassInput): PassPlan {
  const { view, members, deployments, policy, draining } = input;
  const idle: PassPlan = {
    release: [],
    claim: [],
    window: [],
    claimants: [],
    waiting: false,
    reserve: [],
    invalid: deployments.filter(({ type }) => !isDeploymentType(type)),
    addressedDaemons: deployments.filter(
      ({ type, address }) => type === "daemon" && address !== "",
    ),
    skipped: undefined,
  };
  if (view !== "ready") return { ...idle, skipped: "settling" };
  if (!policy) return { ...idle, skipped: "policy_none" };
  const rows = deployments.filter(({ type, enabled }) => type === "deployment" && enabled);
  const fleet = fleetOf(members, input.matches);
  const owners = new Set([...rows.map(({ address }) => address), ...(input.owners ?? [])]);
  const release = [...owners].filter((address) => address !== "" && !members.has(address));
  if (draining) return { ...idle, release };
  const { verdictOf, isEligible } = eligibility(input, policy, fleet);
  const free = rows.filter(({ address }) => address === "");
  const mine = free.filter(isEligible).sort(byAge);
  const handedOver = rows.filter(
    ({ moving_to, move_state }) => moving_to === input.me && move_state === "stopped",
  );
  const offered = rows.filter(
    ({ address, moving_to }) => moving_to === "" && members.get(address)?.draining === true,
  );
  const refused = rows
    .filter(
      (row) => row.moving_to === "" && isRefused(row, members.get(row.address), input.matches),
    )
    .filter((row) => verdictOf(row).canRun)
    .map(({ address }) => address);
  return {
    ...idle,
    release: [...new Set([...release, ...refused])],
    claim: [...handedOver.sort(byAge), ...mine].map(termOf),
    // The age of a row does not count here: without a claim order every node would claim it at once, regardless of load.
    window: (input.window ?? [])
      .filter((row) => verdictOf(row).isLeast)
      .sort(byAge)
      .map(termOf),
    claimants: mine[0] && handedOver.length === 0 ? verdictOf(mine[0]).least : [],
    waiting: free.some((row) => verdictOf(row).canRun),
    reserve: offered.sort(byAge).filter(isEligible).slice(0, CLAIM_CANDIDATES_MAX).map(termOf),
  };
}

/** Whether the row's owner is connected and not draining, but may not run the row. */
export function isRefused(
  row: ListedDeployment,
  owner: Member | undefined,
  matches: MatchWhole = matchWhole,
): boolean {
  return owner !== undefined && !owner.draining && unfitness(row, owner, matches).length > 0;
}

/** Which nodes may claim rows of one demand. */
interface Verdict {
  /** The nodes with the least metric among those that can run the rows. */
  least: string[];
  isLeast: boolean;
  canRun: boolean;
}

/**
 * Decides whether this node may claim a row: it can run the row, and its metric is the least of all nodes that can. Decided
 * per row, so that an idle node that cannot run the row, or never claims, does not block the others.
 */
function eligibility(
  input: PassInput,
  policy: ClaimPolicy,
  { claimants, ableByDemand }: Fleet,
): {
  verdictOf: (row: ListedDeployment) => Verdict;
  isEligible: (row: ListedDeployment) => boolean;
} {
  const {
    me,
    deployments,
    resource_usage,
    recent,
    unclaimedIntervals,
    matches = matchWhole,
  } = input;
  const counts = input.counts ?? countByAddress(deployments);
  const context: ClaimMetricContext = { deployments, resource_usage, counts };
  const snapshots = new Map<string, ClaimMetricSnapshot[]>();
  const verdicts = new Map<string, Verdict>();
  const quickPick = quickPickOf(policy);
  let isMeasured = false;

  /** Evaluates the metrics on first use: in most passes no row needs them. */
  function measure(): void {
    if (isMeasured || policy.providers.length === 0) return;
    isMeasured = true;
    // Skipped without samples: it visits every owned deployment.
    if (recent && Object.keys(resource_usage).length > 0) context.recent = recent();
    if (quickPick) return;
    for (const { address } of claimants)
      snapshots.set(
        address,
        policy.providers.map((provider) => provider.evaluate(address, context)),
      );
  }

  function verdictOf(row: ListedDeployment): Verdict {
    const demand = demandOf(row);
    const former = verdicts.get(demand);
    if (former) return former;
    measure();
    const able = ableByDemand.get(demand) ?? ableOf(row);
    ableByDemand.set(demand, able);
    const least = quickPick?.(able.list, context) ?? policy.pickEligible(able.list, snapshots);
    const verdict = { least, isLeast: least.includes(me), canRun: able.all.has(me) };
    verdicts.set(demand, verdict);
    return verdict;
  }

  function ableOf(row: ListedDeployment): Able {
    const list = claimants
      .filter((node) => unfitness(row, node, matches).length === 0)
      .map(({ address }) => address);
    return { list, all: new Set(list) };
  }

  return {
    verdictOf,
    isEligible(row) {
      const { isLeast, canRun } = verdictOf(row);
      return isLeast || (canRun && unclaimedIntervals(row) >= UNCLAIMED_INTERVALS_MAX);
    },
  };
}

/** What follows from the members alone. */
interface Fleet {
  /** The members that claim deployments. */
  claimants: readonly Member[];
  /** The claimants that can run rows of a demand. */
  ableByDemand: Map<string, Able>;
  /** Whether a member drains. */
  isDraining: boolean;
}

interface Able {
  list: string[];
  all: ReadonlySet<string>;
}

const fleets = new WeakMap<ReadonlyMap<string, Member>, WeakMap<MatchWhole, Fleet>>();

/**
 * Memoised by the map of members, which is the same for most passes: with 10,000 members a pass spent nine tenths of its
 * time on which of them can run what.
 */
export function fleetOf(
  members: ReadonlyMap<string, Member>,
  matches: MatchWhole = matchWhole,
): Fleet {
  const known = fleets.get(members) ?? new WeakMap<MatchWhole, Fleet>();
  fleets.set(members, known);
  const former = known.get(matches);
  if (former) return former;
  const list = [...members.values()];
  const fleet: Fleet = {
    claimants: list.filter(
      ({ claim_policy, draining, tags }) =>
        claim_policy !== "none" && !draining && !isLeaving(tags),
    ),
    ableByDemand: new Map(),
    isDraining: list.some(({ draining }) => draining),
  };
  known.set(matches, fleet);
  return fleet;
}

const demands = new WeakMap<ListedDeployment["selector"], { of: ListedDeployment; key: string }>();

/**
 * What a row requires of a node. Memoised: a pass over 1,000 free rows spent a third of its time here. By the selector, which
 * the free rows of a demand share: with an entry for each, collecting garbage cost more than the pass.
 */
export function demandOf(row: ListedDeployment): string {
  const known = demands.get(row.selector);
  if (known && hasSameNeeds(known.of, row)) return known.key;
  const key = demandKey(row);
  demands.set(row.selector, { of: row, key });
  return key;
}

/** Of two rows with the same selector. */
const hasSameNeeds = (a: ListedDeployment, b: ListedDeployment): boolean =>
  a === b ||
  (a.tenant === b.tenant &&
    a.package_name === b.package_name &&
    a.package_version === b.package_version &&
    a.command === b.command &&
    a.env === b.env &&
    a.loader_env === b.loader_env &&
    a.uses_secrets === b.uses_secrets);

/** The rows that should run on this node: the deployments it owns, and every enabled daemon it may run (R7). */
export function desiredHere(
  deployments: readonly ListedDeployment[],
  node: NodeTraits,
  matches: MatchWhole = matchWhole,
): { row: ListedDeployment; refused: Unfitness[] }[] {
  return deployments
    .filter(
      ({ type, enabled, address }) =>
        enabled && (type === "daemon" || (type === "deployment" && address === node.address)),
    )
    .map((row) => ({ row, refused: unfitness(asOwned(row), node, matches) }))
    .filter(({ row, refused }) => row.type !== "daemon" || !refused.includes("selector_mismatch"));
}

/** A deployment pinned to another node runs here until that node takes it over. */
const asOwned = (row: ListedDeployment): ListedDeployment => {
  if (row.type === "daemon" || !Object.hasOwn(row.selector, ADDRESS_SELECTOR)) return row;
  const { [ADDRESS_SELECTOR]: _, ...selector } = row.selector;
  return { ...row, selector };
};

const termOf = ({ id, generation }: ListedDeployment): DeploymentTerm => ({ id, generation });
