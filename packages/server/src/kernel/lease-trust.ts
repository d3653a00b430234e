export interface Renewal {
  sentAtMs: number;
  ttlMs: number;
  marginMs: number;
}

/**
 * Until when this process may act on a lease without asking the database again.
 *
 * Counted from when the renewal was *sent*, not from when its answer came back. The database began the new
 * term somewhere in between, so the send time is the only instant known to be early enough: a slow but
 * successful renewal must shorten our trust, never stretch it. The margin covers two clocks ticking at
 * slightly different speeds. It cannot cover a process that was stopped, which is why every write also
 * carries the fence. This function saves work; the fence saves data.
 */
export function trustedUntil({ sentAtMs, ttlMs, marginMs }: Renewal): number {
  return sentAtMs + ttlMs - marginMs;
}
