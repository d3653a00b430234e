import { type DeploymentTerm, hash } from "@tenure/protocol";
import type { Clock } from "@tenure/sdk";

const STEP_MS_MIN = 25;
const STEPS_MAX = 40;
/** A claim takes a statement and a refresh of the instance's cache; a list takes neither. */
const CLAIM_PER_LIST = 4;

export interface ClaimDelay {
  waitMs: number;
  /** Rows left to the nodes before this one, so that no two nodes begin with the same row. */
  skip: number;
}

/**
 * Spreads the claims of nodes with the same right to the same rows. The first `rows` nodes claim at once, each beginning
 * with a row of its own; the others wait. Every node computes the same order from a hash of node and row. A node that
 * waited reads the list again before it claims, so a dead node delays the others only briefly.
 */
export function claimDelay({
  me,
  claimants,
  first,
  rows,
  listMs,
}: {
  me: string;
  claimants: readonly string[];
  first: string;
  rows: number;
  /** Duration of the last list call: a step must be longer than a claim, also on a slow server. */
  listMs: number;
}): ClaimDelay {
  if (!claimants.includes(me)) return { waitMs: 0, skip: 0 };
  const seed = hash(first);
  const mine = hash(me, seed);
  const before = claimants.filter((node) => {
    const theirs = hash(node, seed);
    return theirs < mine || (theirs === mine && node < me);
  }).length;
  if (before < rows) return { waitMs: 0, skip: before };
  const stepMs = Math.max(STEP_MS_MIN, CLAIM_PER_LIST * listMs);
  return { waitMs: stepMs * Math.min(STEPS_MAX, before - rows + 1), skip: 0 };
}

/**
 * This node's place in the claim order. Invariant: a node waits at most once per term of a row; when the row is still
 * free after that, the node claims it.
 */
export interface ClaimOrder {
  delay(
    first: DeploymentTerm,
    pass: { claimants: readonly string[]; rows: number; listMs: number },
  ): ClaimDelay;
}

export function createClaimOrder({
  me,
  clock,
  intervalMs,
}: {
  me: string;
  clock: Clock;
  intervalMs: number;
}): ClaimOrder {
  let waited: { first: string; untilMs: number } | undefined;

  return {
    delay({ id, generation }, pass) {
      const first = `${id}:${generation}`;
      const nowMs = clock.monotonicMs();
      // A wake-up during the wait does not shorten it.
      if (waited?.first === first) return { skip: 0, waitMs: Math.max(0, waited.untilMs - nowMs) };
      const { skip, waitMs } = claimDelay({ me, first, ...pass });
      // At most an interval: after that the age of the row decides.
      const boundedMs = Math.min(intervalMs, waitMs);
      if (boundedMs > 0) waited = { first, untilMs: nowMs + boundedMs };
      return { skip, waitMs: boundedMs };
    },
  };
}
