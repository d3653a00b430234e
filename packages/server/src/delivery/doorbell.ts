import { AttemptId, ClientId, JobId } from "@tenure/protocol";
import * as z from "zod";

/**
 * What one instance tells another: look at this job, in this attempt. The job's record says what there is to
 * do, so a doorbell is small, a duplicate is harmless, and one of an older attempt is told by its number.
 */
export const Doorbell = z.looseObject({
  v: z.literal(1).default(1),
  kind: ClientId,
  job_id: JobId,
  attempt_id: AttemptId,
  /** For whom: the connection whose owner should get it. Neither = whoever reads it. */
  session_id: ClientId.optional(),
  node_id: ClientId.optional(),
  /** How often it was sent on from one inbox to another. */
  hops: z.int().min(0).default(0),
  /** In the store's time. Past it the message is a dead letter. */
  deadline_ms: z.int().min(0),
});
export type Doorbell = z.infer<typeof Doorbell>;
/** As its sender writes it: `v` and `hops` may be left out. */
export type NewDoorbell = z.input<typeof Doorbell>;

/** Sent on this often, and no more: two instances that each believe the other to be the owner must end. */
export const HOPS_MAX = 3;

/** A doorbell with room for some words of its own. A payload does not fit, and must not. */
export const DOORBELL_BYTES_MAX = 4_096;

export function writeDoorbell(message: NewDoorbell): string {
  const text = JSON.stringify(Doorbell.parse(message));
  const bytes = Buffer.byteLength(text);
  if (bytes > DOORBELL_BYTES_MAX)
    throw new RangeError(`a doorbell of ${bytes} bytes; payloads belong beside the job's record`);
  return text;
}

/** `undefined` for anything a sender of ours cannot have written. */
export function readDoorbell(text: string): Doorbell | undefined {
  // What was no UTF-8 arrives with replacement characters in it, and might still parse.
  if (text.includes("\ufffd") || Buffer.byteLength(text) > DOORBELL_BYTES_MAX) return undefined;
  try {
    return Doorbell.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
