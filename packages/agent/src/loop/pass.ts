import {
  CLAIM_CANDIDATES_MAX,
  type DeploymentTerm,
  type ListedDeployment,
  type MatchWhole,
  type Member,
  RELEASE_ADDRESS_LENGTH_MAX,
  RELEASE_ADDRESSES_MAX,
  TenureError,
} from "@tenure/protocol";
import { type PassPlan, planPass } from "../claim/plan.ts";
import type { ClaimPolicy } from "../claim/policy.ts";
import { type Turn, turnOf } from "./backoff.ts";
import { createHeldList, type HeldList } from "./deployment-cache.ts";
import type { LoopPorts, MembersSeen } from "./loop-ports.ts";
import { createComplaints } from "./row-warnings.ts";
import { createPatience } from "./unclaimed-age.ts";

export interface PassOptions {
  intervalMs: number;
  /** `undefined`: the policy `none`. */
  policy: ClaimPolicy | undefined;
  matches?: MatchWhole;
}

/** What became of a pass, for whoever decides when the next one is. */
export type PassEnd =
  /** Nothing that this node could do; or it has no connection. */
  | { kind: "idle" }
  | { kind: "claimed"; term: DeploymentTerm }
  | { kind: "reserved"; term: DeploymentTerm }
  /** Somebody was faster with everything it asked for. `moved`: the list has changed since the pass before. */
  | { kind: "conflict"; moved: boolean }
  /** Rows are free that it can run, but others should take them first. */
  | { kind: "waiting"; moved: boolean }
  /** More nodes than rows: others have their turn first. */
  | { kind: "yielded"; forMs: number };

export interface LoopCounts {
  passes: number;
  claims: number;
  conflicts: number;
  reserves: number;
  released: number;
}

export interface Passes {
  /** One pass. Rejects when a call failed; then it has done as much as it could. */
  pass(): Promise<PassEnd>;
  /** The next pass reads the whole list anew. */
  distrust(): void;
  readonly counts: Readonly<LoopCounts>;
  /** How many node-units the last pass saw. */
  readonly members: number;
}

/** The seed's scheduler pass: look, free what is lost, claim at most one. The server's statements decide. */
export function createPasses(
  ports: LoopPorts,
  { intervalMs, policy, matches }: PassOptions,
  list: HeldList = createHeldList(ports.list),
): Passes {
  const { me, clock } = ports;
  const patience = createPatience(intervalMs);
  const complaints = createComplaints(ports.log);
  const counts: LoopCounts = { passes: 0, claims: 0, conflicts: 0, reserves: 0, released: 0 };
  /** The members of the last pass, while that found nothing to do for anybody. */
  let quiet: ReadonlyMap<string, Member> | undefined;
  let yielded: { key: string; untilMs: number } | undefined;
  let memberCount = 1;
  let lookMs = 0;

  async function pass(): Promise<PassEnd> {
    counts.passes += 1;
    const seen = await ports.members();
    if (!seen) return { kind: "idle" };
    memberCount = seen.members.size;
    const moved = await look();
    // The list is the same and so is everybody: there is still nothing to do, and it costs nothing to know.
    if (!moved && quiet === seen.members) return { kind: "idle" };
    quiet = undefined;
    const first = plan(seen);
    complaints.rows(first);
    if (first.skipped === "policy_none") complaints.policyDisabled();
    const released = await release(first.release);
    const decided = released ? plan(seen) : first;
    const end = (await claim(decided)) ?? (await reserve(decided));
    if (end === "conflict") return { kind: "conflict", moved };
    if (end) return end;
    if (decided.waiting) return { kind: "waiting", moved };
    if (isQuiet(decided, seen)) quiet = seen.members;
    return { kind: "idle" };
  }

  async function look(): Promise<boolean> {
    const startedMs = clock.monotonicMs();
    const moved = await list.read();
    lookMs = clock.monotonicMs() - startedMs;
    complaints.skipped(list.skipped);
    if (moved) ports.changed(list.concerning(me), list.isFresh);
    return moved;
  }

  function plan({ view, members }: MembersSeen): PassPlan {
    const nowMs = clock.monotonicMs();
    const rows = list.relevant(members, matches);
    const needsOwner = ({ type, enabled, address }: ListedDeployment) =>
      type === "deployment" && enabled && (address === "" || members.get(address)?.draining);
    patience.seen(rows.filter(needsOwner), nowMs);
    return planPass({
      me,
      view,
      members: fleetOf(members).list,
      deployments: rows,
      aside: list.aside(me),
      counts: list.counts,
      resource_usage: list.resourceUsage,
      recent: list.recent,
      policy,
      draining: members.get(me)?.draining ?? false,
      waitedIntervals: (row) => patience.waitedIntervals(row, nowMs),
      ...(matches && { matches }),
    });
  }

  /** Whether anything was freed: then there is a newer list. */
  async function release(addresses: readonly string[]): Promise<boolean> {
    // A longer one is no address, and the server refuses the whole call for it.
    const named = addresses.filter(({ length }) => length <= RELEASE_ADDRESS_LENGTH_MAX);
    if (named.length === 0) return false;
    const released = await ports.release(named.slice(0, RELEASE_ADDRESSES_MAX));
    if (released.length === 0) return false;
    counts.released += released.length;
    ports.log({
      level: "info",
      event: "deployments.released",
      message: "deployments of lost nodes are free",
      details: { count: released.length, addresses },
    });
    await look();
    return true;
  }

  async function claim({
    claim: wanted,
    aside,
    claimants,
  }: PassPlan): Promise<PassEnd | "conflict" | undefined> {
    const candidates = wanted.filter((term) => !ports.avoids(term));
    const [first] = candidates;
    if (!first) return undefined;
    const { waitMs, skip } = turn(first, { claimants, rows: candidates.length });
    const others = waitMs > 0 ? aside.filter((term) => !ports.avoids(term)) : [];
    if (waitMs > 0 && others.length === 0) return { kind: "yielded", forMs: waitMs };
    const from = Math.max(0, Math.min(skip, candidates.length - CLAIM_CANDIDATES_MAX));
    const asked = waitMs > 0 ? others : candidates.slice(from);
    const term = await orConflict(ports.claim(asked.slice(0, CLAIM_CANDIDATES_MAX)));
    if (!term) return "conflict";
    counts.claims += 1;
    ports.log({
      level: "info",
      event: "deployment.claimed",
      message: "this node owns it from now on",
      details: { deploymentId: term.id, generation: term.generation },
    });
    return { kind: "claimed", term };
  }

  /** Once per term of a row: whoever has given way and finds it still free takes it. */
  function turn(
    { id, generation }: DeploymentTerm,
    { claimants, rows }: { claimants: readonly string[]; rows: number },
  ): Turn {
    const key = `${id}:${generation}`;
    const nowMs = clock.monotonicMs();
    // A wake-up in between is no reason to go before one's turn.
    if (yielded?.key === key) return { skip: 0, waitMs: Math.max(0, yielded.untilMs - nowMs) };
    const mine = turnOf({ me, claimants, first: key, rows, lookMs });
    // Never beyond an interval: then patience decides.
    const waitMs = Math.min(intervalMs, mine.waitMs);
    if (waitMs > 0) yielded = { key, untilMs: nowMs + waitMs };
    return { ...mine, waitMs };
  }

  async function reserve({ reserve: wanted }: PassPlan): Promise<PassEnd | "conflict" | undefined> {
    const candidates = wanted.filter((term) => !ports.avoids(term));
    if (candidates.length === 0) return undefined;
    const term = await orConflict(ports.reserve(candidates));
    if (!term) return "conflict";
    counts.reserves += 1;
    return { kind: "reserved", term };
  }

  async function orConflict(asked: Promise<DeploymentTerm>): Promise<DeploymentTerm | undefined> {
    try {
      return await asked;
    } catch (error) {
      if (!(error instanceof TenureError) || error.code !== "ERR_CLAIM_CONFLICT") throw error;
      counts.conflicts += 1;
      return undefined;
    }
  }

  /** Rows of draining owners may come to be offered, and lost ones to be released, without any change of the list. */
  function isQuiet(decided: PassPlan, { view, members }: MembersSeen): boolean {
    return view === "ready" && decided.release.length === 0 && !fleetOf(members).isDraining;
  }

  return {
    pass,
    distrust: list.distrust,
    counts,
    get members() {
      return memberCount;
    },
  };
}

interface Fleet {
  list: readonly Member[];
  isDraining: boolean;
}

const fleets = new WeakMap<ReadonlyMap<string, Member>, Fleet>();

/** One list for as long as the members are the same: what a plan finds out about them it remembers by it. */
function fleetOf(members: ReadonlyMap<string, Member>): Fleet {
  const known = fleets.get(members);
  if (known) return known;
  const list = [...members.values()];
  const fleet = { list, isDraining: list.some(({ draining }) => draining) };
  fleets.set(members, fleet);
  return fleet;
}
