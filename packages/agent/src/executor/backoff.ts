export interface Backoff {
  baseMs: number;
  capMs: number;
  /** A child that ran for so long owes nothing to the failures before it. */
  stableMs: number;
}

export const BACKOFF: Backoff = { baseMs: 1_000, capMs: 60_000, stableMs: 60_000 };

/** Up to this share is added, so that a hundred children that failed together do not come back together. */
const JITTER = 0.1;

/** How long to wait after so many failures in a row. */
export function backoffMs(
  { failures, random }: { failures: number; random: number },
  { baseMs, capMs }: Backoff = BACKOFF,
): number {
  const plainMs = Math.min(capMs, baseMs * 2 ** Math.max(0, failures - 1));
  return plainMs * (1 + JITTER * random);
}
