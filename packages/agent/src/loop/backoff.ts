// Delays before the next pass. All of them are random: passes of many nodes are cheap unless they happen at the same moment.

const SPREAD_BASE_MS = 20;
/** Keeps the passes per second after a wake-up at about a thousand, whatever the size of the fleet. */
const SPREAD_PER_MEMBER_MS = 2;
const SPREAD_MS_MAX = 2_000;
const JITTER = 0.2;

/** The longest delay after a wake-up. The first node to run does the work; the others find it done. */
export function spreadMs(members: number): number {
  return Math.min(SPREAD_MS_MAX, unboundedSpreadMs(members));
}

const unboundedSpreadMs = (members: number): number =>
  SPREAD_BASE_MS + SPREAD_PER_MEMBER_MS * members;

/** The delay between two ordinary passes. */
export function jitteredMs(intervalMs: number, random: number): number {
  return intervalMs * (1 - JITTER + 2 * JITTER * random);
}

/**
 * The delay while rows are free that this node can run but that other nodes should claim first. Short, because a claim
 * wakes no other node; doubled for each pass in a row that found the list unchanged.
 */
export function retryMs({
  members,
  unchanged,
  intervalMs,
  random,
}: {
  members: number;
  /** Passes in a row that found the list unchanged. */
  unchanged: number;
  intervalMs: number;
  random: number;
}): number {
  const limitMs = Math.min(intervalMs, unboundedSpreadMs(members) * 2 ** Math.min(unchanged, 16));
  return limitMs * (0.5 + 0.5 * random);
}
