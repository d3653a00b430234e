import { type Doorbell, readDoorbell } from "./doorbell.ts";

export const BURY_REASONS = ["unparsable", "deadline", "deliveries", "hops"] as const;
/** Why a message became a dead letter. */
export type BuryReason = (typeof BURY_REASONS)[number];

/** A message as it lies in an inbox. */
export interface InboxEntry {
  id: string;
  text: string;
  /** How often it was delivered before now. */
  deliveries: number;
}

export type Verdict =
  | { outcome: "deliver"; message: Doorbell }
  | { outcome: "bury"; reason: BuryReason };

/**
 * Whether a message may still be delivered. Nobody can act on what nobody can read; past its deadline the job
 * has been decided without it; and after so many deliveries one more will not help.
 */
export function judge(
  { text, deliveries }: InboxEntry,
  { nowMs, deliveriesMax }: { nowMs: number; deliveriesMax: number },
): Verdict {
  const message = readDoorbell(text);
  if (!message) return { outcome: "bury", reason: "unparsable" };
  if (nowMs > message.deadline_ms) return { outcome: "bury", reason: "deadline" };
  if (deliveries >= deliveriesMax) return { outcome: "bury", reason: "deliveries" };
  return { outcome: "deliver", message };
}
