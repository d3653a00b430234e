export interface Backoff {
  baseMs: number;
  capMs: number;
  /** A child that ran for so long resets the count of failures. */
  stableMs: number;
}

export const BACKOFF: Backoff = { baseMs: 1_000, capMs: 60_000, stableMs: 60_000 };

/** The share added at random, so that children that failed together do not restart together. */
const JITTER = 0.1;

/** Returns the delay after so many failures in a row. */
export function backoffMs(
  { failures, random }: { failures: number; random: number },
  { baseMs, capMs }: Backoff = BACKOFF,
): number {
  const plainMs = Math.min(capMs, baseMs * 2 ** Math.max(0, failures - 1));
  return plainMs * (1 + JITTER * random);
}
