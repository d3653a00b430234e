import {
  CLAIM_CANDIDATES_MAX,
  type DeploymentTerm,
  LISTED_OWNERS_MAX,
  type ListedDeployment,
  type MatchWhole,
  type Member,
  RELEASE_ADDRESS_LENGTH_MAX,
  RELEASE_ADDRESSES_MAX,
  TenureError,
} from "@tenure/protocol";
import { fleetOf, type PassPlan, planPass } from "../claim/plan.ts";
import type { ClaimPolicy } from "../claim/policy.ts";
import { createClaimOrder } from "./claim-order.ts";
import { createDeploymentCache, type DeploymentCache } from "./deployment-cache.ts";
import type { LoopPorts, MembersSnapshot } from "./loop-ports.ts";
import { createRowWarnings } from "./row-warnings.ts";
import { createUnclaimedAge } from "./unclaimed-age.ts";

export interface PassOptions {
  intervalMs: number;
  /** `undefined`: the policy `none`. */
  policy: ClaimPolicy | undefined;
  matches?: MatchWhole;
}

/** The outcome of a pass, from which the loop computes the delay before the next one. */
export type PassOutcome =
  /** This node could do nothing, or has no connection. */
  | { kind: "idle" }
  | { kind: "claimed"; term: DeploymentTerm }
  | { kind: "reserved"; term: DeploymentTerm }
  /** Other nodes claimed every candidate first. `changed`: the list has changed since the pass before. */
  | { kind: "conflict"; changed: boolean }
  /** Rows are free that this node can run, but other nodes should claim them first. */
  | { kind: "waiting"; changed: boolean }
  /** More nodes than rows: other nodes come first in the claim order. */
  | { kind: "yielded"; forMs: number };

export interface LoopCounts {
  passes: number;
  claims: number;
  conflicts: number;
  reserves: number;
  released: number;
}

export interface Passes {
  /** Runs one pass. Rejects when a call failed; the steps before that call have been taken. */
  pass(): Promise<PassOutcome>;
  /** Makes the next pass read the whole list. */
  invalidate(): void;
  readonly counts: Readonly<LoopCounts>;
  /** The number of node-units in the last pass. */
  readonly members: number;
}

/**
 * The scheduler pass: refresh the list, release the deployments of lost nodes, claim or reserve at most one. The plan only
 * proposes; the server's statements decide.
 */
export function createPasses(
  ports: LoopPorts,
  options: PassOptions,
  cache: DeploymentCache = createDeploymentCache(ports.list),
): Passes {
  const { me, clock } = ports;
  const planner = createPlanner(ports, options, cache);
  const order = createClaimOrder({ me, clock, intervalMs: options.intervalMs });
  const warnings = createRowWarnings(ports.log);
  const counts: LoopCounts = { passes: 0, claims: 0, conflicts: 0, reserves: 0, released: 0 };
  /** The members of the last pass, if that pass found nothing to do. */
  let idleMembers: ReadonlyMap<string, Member> | undefined;
  let memberCount = 1;
  let listMs = 0;

  async function pass(): Promise<PassOutcome> {
    counts.passes += 1;
    const snapshot = await ports.members();
    if (!snapshot) return { kind: "idle" };
    memberCount = snapshot.members.size;
    const changed = await refresh(snapshot);
    // Neither the list nor the members have changed, so there is still nothing to do.
    if (!changed && idleMembers === snapshot.members) return { kind: "idle" };
    idleMembers = undefined;
    const first = planner.plan(snapshot);
    warnings.rows(first);
    if (first.skipped === "policy_none") warnings.policyDisabled();
    const released = await release(first.release, snapshot);
    const plan = released ? planner.plan(snapshot) : first;
    const outcome = (await claim(plan)) ?? (await reserve(plan));
    if (outcome === "conflict") return { kind: "conflict", changed };
    if (outcome) return outcome;
    if (plan.waiting) return { kind: "waiting", changed };
    if (isIdle(plan, snapshot)) idleMembers = snapshot.members;
    return { kind: "idle" };
  }

  async function refresh({ members }: MembersSnapshot): Promise<boolean> {
    const startedMs = clock.monotonicMs();
    const changed = await cache.refresh(drainingOwners(members, cache.counts));
    listMs = clock.monotonicMs() - startedMs;
    warnings.skipped(cache.skipped);
    if (changed) ports.changed(cache.forNode(me), cache.isFresh);
    return changed;
  }

  /** Returns whether a row was released: then the list has been refreshed. */
  async function release(
    addresses: readonly string[],
    snapshot: MembersSnapshot,
  ): Promise<boolean> {
    // The server refuses the whole call for a text that is too long to be an address.
    const named = addresses.filter(({ length }) => length <= RELEASE_ADDRESS_LENGTH_MAX);
    if (named.length === 0) return false;
    const released = await ports.release(named.slice(0, RELEASE_ADDRESSES_MAX));
    if (released.length === 0) return false;
    counts.released += released.length;
    ports.log({
      level: "info",
      event: "deployments.released",
      message: "released the deployments of lost nodes",
      details: { count: released.length, addresses },
    });
    await refresh(snapshot);
    return true;
  }

  async function claim(plan: PassPlan): Promise<PassOutcome | "conflict" | undefined> {
    const candidates = plan.claim.filter((term) => !ports.avoids(term));
    const [first] = candidates;
    if (!first) return undefined;
    const { claimants } = plan;
    const { waitMs, skip } = order.delay(first, { claimants, rows: candidates.length, listMs });
    const window = waitMs > 0 ? plan.window.filter((term) => !ports.avoids(term)) : [];
    if (waitMs > 0 && window.length === 0) return { kind: "yielded", forMs: waitMs };
    const from = Math.max(0, Math.min(skip, candidates.length - CLAIM_CANDIDATES_MAX));
    const named = waitMs > 0 ? window : candidates.slice(from);
    const term = await orConflict(ports.claim(named.slice(0, CLAIM_CANDIDATES_MAX)));
    if (!term) return "conflict";
    counts.claims += 1;
    ports.log({
      level: "info",
      event: "deployment.claimed",
      message: "claimed a deployment",
      details: { deploymentId: term.id, generation: term.generation },
    });
    return { kind: "claimed", term };
  }

  async function reserve(plan: PassPlan): Promise<PassOutcome | "conflict" | undefined> {
    const candidates = plan.reserve.filter((term) => !ports.avoids(term));
    if (candidates.length === 0) return undefined;
    const term = await orConflict(ports.reserve(candidates));
    if (!term) return "conflict";
    counts.reserves += 1;
    return { kind: "reserved", term };
  }

  async function orConflict(call: Promise<DeploymentTerm>): Promise<DeploymentTerm | undefined> {
    try {
      return await call;
    } catch (error) {
      if (!(error instanceof TenureError) || error.code !== "ERR_CLAIM_CONFLICT") throw error;
      counts.conflicts += 1;
      return undefined;
    }
  }

  return {
    pass,
    invalidate: cache.invalidate,
    counts,
    get members() {
      return memberCount;
    },
  };
}

/** Collects the input of `planPass` from the cache and the age of the rows without an owner. */
function createPlanner(
  { me, clock }: LoopPorts,
  { intervalMs, policy, matches }: PassOptions,
  cache: DeploymentCache,
): { plan(snapshot: MembersSnapshot): PassPlan } {
  const unclaimedAge = createUnclaimedAge(intervalMs);
  return {
    plan({ view, members }) {
      const nowMs = clock.monotonicMs();
      const rows = cache.relevant(members, matches);
      const needsOwner = ({ type, enabled, address }: ListedDeployment) =>
        type === "deployment" && enabled && (address === "" || members.get(address)?.draining);
      unclaimedAge.observe(rows.filter(needsOwner), nowMs);
      return planPass({
        me,
        view,
        members,
        deployments: rows,
        window: cache.claimWindow(me),
        counts: cache.counts,
        ...(cache.owners && { owners: cache.owners }),
        resource_usage: cache.resourceUsage,
        recent: cache.recent,
        policy,
        draining: members.get(me)?.draining ?? false,
        unclaimedIntervals: (row) => unclaimedAge.intervals(row, nowMs),
        ...(matches && { matches }),
      });
    },
  };
}

/** A node could take over their rows. In the same order in every pass, so that the same rows come again. */
function drainingOwners(
  members: ReadonlyMap<string, Member>,
  counts: ReadonlyMap<string, number>,
): string[] {
  if (!fleetOf(members).isDraining) return [];
  const draining = [...members.values()].filter(
    ({ address, draining }) => draining && counts.has(address),
  );
  return draining
    .map(({ address }) => address)
    .sort()
    .slice(0, LISTED_OWNERS_MAX);
}

/** Rows of draining or lost owners can become claimable without a change of the list. */
const isIdle = ({ release }: PassPlan, { view, members }: MembersSnapshot): boolean =>
  view === "ready" && release.length === 0 && !fleetOf(members).isDraining;
