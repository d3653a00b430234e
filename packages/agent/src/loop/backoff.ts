import { hash } from "./hash.ts";

// How long to wait before the next look. All of it is spread by chance: what hurts a server is not how many nodes
// look, but that all of them agree on the moment.

const SPREAD_BASE_MS = 20;
/** So that the number of looks per second after a wake-up does not grow with the fleet: about a thousand. */
const SPREAD_PER_MEMBER_MS = 2;
const SPREAD_MS_MAX = 2_000;
const JITTER = 0.2;

/** After a wake-up each node waits up to so long; the first of them does the work, the rest find it done. */
export function spreadMs(members: number): number {
  return Math.min(SPREAD_MS_MAX, unboundedSpreadMs(members));
}

const unboundedSpreadMs = (members: number): number =>
  SPREAD_BASE_MS + SPREAD_PER_MEMBER_MS * members;

/** Between two ordinary passes. */
export function jitteredMs(intervalMs: number, random: number): number {
  return intervalMs * (1 - JITTER + 2 * JITTER * random);
}

/**
 * When rows are free that this node can run but somebody else should take first: soon, because a claim wakes nobody,
 * and less and less soon while nothing moves.
 */
export function lookAgainMs({
  members,
  unmoved,
  intervalMs,
  random,
}: {
  members: number;
  /** Looks in a row that found the list unchanged. */
  unmoved: number;
  intervalMs: number;
  random: number;
}): number {
  const limitMs = Math.min(intervalMs, unboundedSpreadMs(members) * 2 ** Math.min(unmoved, 16));
  return limitMs * (0.5 + 0.5 * random);
}

const TURN_MS_MIN = 25;
const TURNS_MAX = 40;
/** A claim takes a statement and a look at its outcome where a list takes none. */
const CLAIM_PER_LOOK = 4;

export interface Turn {
  waitMs: number;
  /** So many rows are for those who come before: whoever begins behind them meets nobody. */
  skip: number;
}

/**
 * How long to let others go first when more nodes have the same right than there are rows: not at all for those whose
 * turn it is, and each of them has a row of its own to begin with. Everybody finds the same order, by a hash of the
 * node and the row; whoever comes later looks again before it asks, so a node that is gone holds nobody up for long.
 */
export function turnOf({
  me,
  claimants,
  first,
  rows,
  lookMs,
}: {
  me: string;
  claimants: readonly string[];
  first: string;
  rows: number;
  /** How long the list took just now: a turn must be longer than a claim, also where everything is slow. */
  lookMs: number;
}): Turn {
  if (!claimants.includes(me)) return { waitMs: 0, skip: 0 };
  const lot = hash(first);
  const mine = hash(me, lot);
  const before = claimants.filter((node) => {
    const theirs = hash(node, lot);
    return theirs < mine || (theirs === mine && node < me);
  }).length;
  if (before < rows) return { waitMs: 0, skip: before };
  const turnMs = Math.max(TURN_MS_MIN, CLAIM_PER_LOOK * lookMs);
  return { waitMs: turnMs * Math.min(TURNS_MAX, before - rows + 1), skip: 0 };
}
