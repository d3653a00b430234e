import type { NonceStatus } from "@tenure/protocol";

/**
 * The events of a nonce. `use` and `recycle` come from its own hold, `quarantine` and `release` when the hold expires (by
 * `nonce.hold_expiry`), `resolve_*` from an operator or the chain probe. `raise` closes what is open below a raised cursor.
 */
export const NONCE_EVENTS = [
  "allocate",
  "use",
  "recycle",
  "quarantine",
  "release",
  "resolve_consumed",
  "resolve_released",
  "raise",
] as const;
export type NonceEvent = (typeof NONCE_EVENTS)[number];
export type MarkEvent = Extract<
  NonceEvent,
  "use" | "recycle" | "resolve_consumed" | "resolve_released"
>;

type Row<Events = typeof NONCE_EVENTS> = { [E in keyof Events]: NonceStatus | null };
const no = null; // Refused. Every cell is a decision; none is an omission.

// A released number that its own hold reports as used after all was broadcast: it must never be handed out again.
// A held number belongs to its holder alone, so an operator waits until the hold has run out. A raise is different: it
// declares every number below it used on the chain, the held ones too; their holders may still add their hash.
// biome-ignore format: a table
const NEXT: Record<NonceStatus, Row> = {
  //            allocate  use         recycle     quarantine     release     resolve_consumed  resolve_released  raise
  HELD:        [no,       "CONSUMED", "RELEASED", "QUARANTINED", "RELEASED", no,               no,         "CONSUMED"],
  QUARANTINED: [no,       "CONSUMED", "RELEASED", no,            no,         "CONSUMED",       "RELEASED", "CONSUMED"],
  RELEASED:    ["HELD",   "CONSUMED", no,         no,            no,         "CONSUMED",       no,         "CONSUMED"],
  CONSUMED:    [no,       no,         no,         no,            no,         no,               no,         no        ],
};

/** The state after `event`, or `null` where a number in `status` refuses it. The schema's `nonce_next` agrees. */
export function nextStatus(status: NonceStatus, event: NonceEvent): NonceStatus | null {
  return NEXT[status][NONCE_EVENTS.indexOf(event)] ?? null;
}

const GOAL: Record<MarkEvent, NonceStatus> = {
  use: "CONSUMED",
  recycle: "RELEASED",
  resolve_consumed: "CONSUMED",
  resolve_released: "RELEASED",
};

export interface MarkedNonce {
  status: NonceStatus;
  holdId: string;
  txHash: string | null;
}

/**
 * The outcome of a mark, by the state of the nonce after it. So a repeated mark succeeds, and a mark that lost to another
 * one is recognised without a record of their order.
 */
export function judgeMark(
  mark: { event: MarkEvent; holdId?: string | undefined; txHash?: string | undefined },
  found: MarkedNonce | undefined,
): "done" | "absent" | "other_hold" | "refused" {
  if (!found) return "absent";
  if (mark.holdId !== undefined && mark.holdId !== found.holdId) return "other_hold";
  if (found.status !== GOAL[mark.event]) return "refused";
  return mark.event === "use" && mark.txHash !== found.txHash ? "refused" : "done";
}
