import {
  ADDRESS_SELECTOR,
  CLAIM_CANDIDATES_MAX,
  type DeploymentTerm,
  isDeploymentType,
  isLeaving,
  type ListedDeployment,
  type MatchWhole,
  type Member,
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
} from "./policy.ts";

/** Everything a pass looks at. */
export interface PassInput {
  me: string;
  view: ViewState;
  members: readonly Member[];
  /** All of them, or those that can matter to this pass: then `counts` must be given too. */
  deployments: readonly ListedDeployment[];
  /** Free rows that few others look at. */
  aside?: readonly ListedDeployment[];
  /** Deployments per owner, for whoever keeps count. */
  counts?: ReadonlyMap<string, number>;
  resource_usage: Readonly<Record<string, ResourceUsage>>;
  /** Deployments per owner that came too lately for its sample to show them. */
  recent?: () => ReadonlyMap<string, number>;
  /** `undefined`: the policy `none`. */
  policy: ClaimPolicy | undefined;
  draining: boolean;
  /** How many intervals this node has seen the row unassigned, in its present term. */
  waitedIntervals: (row: ListedDeployment) => number;
  matches?: MatchWhole;
}

/** What the pass should do. At most one claim and one reservation, decided by the server. */
export interface PassPlan {
  /** Addresses that own deployments and are not in the view, or may not run one that this node may. */
  release: string[];
  /** In order; more than one call may name. */
  claim: DeploymentTerm[];
  /** What to claim instead while others come before. */
  aside: DeploymentTerm[];
  /** Nodes with the same right to the first free candidate, this one too; they race for it. */
  claimants: string[];
  /** Whether rows are free that this node can run, whether it may claim them now or not. */
  waiting: boolean;
  /** Rows of draining owners to take over. */
  reserve: DeploymentTerm[];
  /** Rows to complain about, each once per change. */
  invalid: ListedDeployment[];
  strayAddress: ListedDeployment[];
  skipped: "settling" | "policy_none" | undefined;
}

/** A row that nobody took for so long may be claimed by any node that can run it, whatever the metric says. */
export const PATIENCE_INTERVALS = 3;

/** From what is known to what to ask for. Pure: the server's statements decide whether it happens. */
export function planPass(input: PassInput): PassPlan {
  const { view, members, deployments, policy, draining } = input;
  const idle: PassPlan = {
    release: [],
    claim: [],
    aside: [],
    claimants: [],
    waiting: false,
    reserve: [],
    invalid: deployments.filter(({ type }) => !isDeploymentType(type)),
    strayAddress: deployments.filter(({ type, address }) => type === "daemon" && address !== ""),
    skipped: undefined,
  };
  if (view !== "ready") return { ...idle, skipped: "settling" };
  if (!policy) return { ...idle, skipped: "policy_none" };
  const rows = deployments.filter(({ type, enabled }) => type === "deployment" && enabled);
  const fleet = fleetOf(members, input.matches);
  const { here } = fleet;
  const release = [...new Set(rows.map(({ address }) => address))].filter(
    (address) => address !== "" && !here.has(address),
  );
  if (draining) return { ...idle, release };
  const { verdictOf, isEligible } = eligibility(input, policy, fleet);
  const free = rows.filter(({ address }) => address === "");
  const mine = free.filter(isEligible).sort(byAge);
  const handedOver = rows.filter(
    ({ moving_to, move_state }) => moving_to === input.me && move_state === "stopped",
  );
  const offered = rows.filter(
    ({ address, moving_to }) => moving_to === "" && here.get(address)?.draining === true,
  );
  const refused = rows
    .filter((row) => row.moving_to === "" && isRefused(row, here.get(row.address), input.matches))
    .filter((row) => verdictOf(row).canRun)
    .map(({ address }) => address);
  return {
    ...idle,
    release: [...new Set([...release, ...refused])],
    claim: [...handedOver.sort(byAge), ...mine].map(termOf),
    // However long they are free: here nobody waits for his turn, and all would claim at once, whatever they have.
    aside: (input.aside ?? [])
      .filter((row) => verdictOf(row).isLeast)
      .sort(byAge)
      .map(termOf),
    claimants: mine[0] && handedOver.length === 0 ? verdictOf(mine[0]).least : [],
    waiting: free.some((row) => verdictOf(row).canRun),
    reserve: offered.sort(byAge).filter(isEligible).slice(0, CLAIM_CANDIDATES_MAX).map(termOf),
  };
}

/** Whether its owner is there, stays, and may not run it. */
export function isRefused(
  row: ListedDeployment,
  owner: Member | undefined,
  matches: MatchWhole = matchWhole,
): boolean {
  return owner !== undefined && !owner.draining && unfitness(row, owner, matches).length > 0;
}

/** The seed's order, the same on every node: `updated_at, created_at, id`. */
export function byAge(a: ListedDeployment, b: ListedDeployment): number {
  return (
    compare(a.updated_at, b.updated_at) ||
    compare(a.created_at, b.created_at) ||
    compare(a.id, b.id)
  );
}

/** The same for all rows that ask for the same: thousands of them are one set. */
interface Verdict {
  /** Everybody whose metric is the least among those who can run it. */
  least: string[];
  isLeast: boolean;
  canRun: boolean;
}

/**
 * Whether this node may claim a row: it can run it, and its metric is the least among those who can. Asked per
 * candidate: a node that is idle but cannot run the row, or never claims, must not keep the others waiting.
 */
function eligibility(
  input: PassInput,
  policy: ClaimPolicy,
  { rivals, able: known }: Fleet,
): {
  verdictOf: (row: ListedDeployment) => Verdict;
  isEligible: (row: ListedDeployment) => boolean;
} {
  const { me, deployments, resource_usage, recent, waitedIntervals, matches = matchWhole } = input;
  const counts = input.counts ?? countByAddress(deployments);
  const context: ClaimMetricContext = { deployments, resource_usage, counts };
  const snapshots = new Map<string, ClaimMetricSnapshot[]>();
  const verdicts = new Map<string, Verdict>();

  /** Measured when the first row asks: on most passes none does. */
  function measure(): void {
    if (snapshots.size > 0 || policy.providers.length === 0) return;
    // Only where there are samples: to know what they miss means to look at every deployment once.
    if (recent && Object.keys(resource_usage).length > 0) context.recent = recent();
    for (const { address } of rivals)
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
    const able = known.get(demand) ?? ableOf(row);
    known.set(demand, able);
    const least = policy.pickEligible(able.list, snapshots);
    const verdict = { least, isLeast: least.includes(me), canRun: able.all.has(me) };
    verdicts.set(demand, verdict);
    return verdict;
  }

  function ableOf(row: ListedDeployment): Able {
    const list = rivals
      .filter((node) => unfitness(row, node, matches).length === 0)
      .map(({ address }) => address);
    return { list, all: new Set(list) };
  }

  return {
    verdictOf,
    isEligible(row) {
      const { isLeast, canRun } = verdictOf(row);
      return isLeast || (canRun && waitedIntervals(row) >= PATIENCE_INTERVALS);
    },
  };
}

/** What follows from who is there alone. */
interface Fleet {
  here: ReadonlyMap<string, Member>;
  /** Those who claim. */
  rivals: readonly Member[];
  /** Who of them can run what, by demand. */
  able: Map<string, Able>;
}

interface Able {
  list: string[];
  all: ReadonlySet<string>;
}

const fleets = new WeakMap<readonly Member[], WeakMap<MatchWhole, Fleet>>();

/**
 * Remembered by the list of members: it is the same for most passes, and of ten thousand members a pass spent nine
 * tenths of its time on finding out again who can run what.
 */
function fleetOf(members: readonly Member[], matches: MatchWhole = matchWhole): Fleet {
  const known = fleets.get(members) ?? new WeakMap<MatchWhole, Fleet>();
  fleets.set(members, known);
  const former = known.get(matches);
  if (former) return former;
  const fleet: Fleet = {
    here: new Map(members.map((member) => [member.address, member])),
    rivals: members.filter(
      ({ claim_policy, draining, tags }) =>
        claim_policy !== "none" && !draining && !isLeaving(tags),
    ),
    able: new Map(),
  };
  known.set(matches, fleet);
  return fleet;
}

const demands = new WeakMap<ListedDeployment, string>();

/** What a row asks of a node. Remembered by the row: a pass over a thousand free ones spent a third of its time here. */
export function demandOf(row: ListedDeployment): string {
  const known = demands.get(row);
  if (known !== undefined) return known;
  const { tenant, selector, package_name, package_version, command } = row;
  const demand = JSON.stringify([tenant, selector, package_name, package_version, command]);
  demands.set(row, demand);
  return demand;
}

/** Desired on this node: its own deployments, and every enabled daemon it may run (R7). */
export function desiredHere(
  deployments: readonly ListedDeployment[],
  node: Pick<Member, "address" | "labels" | "trusted_package_regexp" | "custom_command">,
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

/** A deployment that is pinned to another node goes on here until that node takes it over. */
const asOwned = (row: ListedDeployment): ListedDeployment => {
  if (row.type === "daemon" || !Object.hasOwn(row.selector, ADDRESS_SELECTOR)) return row;
  const { [ADDRESS_SELECTOR]: _, ...selector } = row.selector;
  return { ...row, selector };
};

const termOf = ({ id, generation }: ListedDeployment): DeploymentTerm => ({ id, generation });

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
