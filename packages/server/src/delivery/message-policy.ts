import { type Doorbell, readDoorbell } from "./doorbell.ts";

/** Why a message became a dead letter. */
export type BuryReason = "unparsable" | "deadline" | "deliveries" | "hops";

/** A message as it is stored in an inbox. */
export interface InboxEntry {
  id: string;
  text: string;
  /** How often it was delivered before. */
  deliveries: number;
}

export type Checked =
  | { outcome: "deliver"; message: Doorbell }
  | { outcome: "bury"; reason: BuryReason };

/**
 * Decides whether a message may be delivered. One that cannot be parsed has no effect; past its deadline the job has been
 * decided without it; after `deliveriesMax` deliveries another one will not help.
 */
export function checkMessage(
  { text, deliveries }: InboxEntry,
  { nowMs, deliveriesMax }: { nowMs: number; deliveriesMax: number },
): Checked {
  const message = readDoorbell(text);
  if (!message) return { outcome: "bury", reason: "unparsable" };
  if (nowMs > message.deadline_ms) return { outcome: "bury", reason: "deadline" };
  if (deliveries >= deliveriesMax) return { outcome: "bury", reason: "deliveries" };
  return { outcome: "deliver", message };
}
