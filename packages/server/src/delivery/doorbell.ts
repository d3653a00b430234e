import { AttemptId, ClientId, JobId } from "@tenure/protocol";
import * as z from "zod";

/**
 * A message from one instance to another: check this job, in this attempt. The job's record contains what there is to
 * do, so a doorbell is small, a duplicate is harmless, and one of an older attempt is recognised by its number.
 */
export const Doorbell = z.looseObject({
  v: z.literal(1).default(1),
  kind: ClientId,
  job_id: JobId,
  attempt_id: AttemptId,
  /** The connection whose owner should apply it. With neither, the instance that reads it does. */
  session_id: ClientId.optional(),
  node_id: ClientId.optional(),
  /** How often it was forwarded from one inbox to another. */
  hops: z.int().min(0).default(0),
  /** In the store's time. After it the message becomes a dead letter. */
  deadline_ms: z.int().min(0),
});
export type Doorbell = z.infer<typeof Doorbell>;
/** As written by its sender: `v` and `hops` are optional. */
export type NewDoorbell = z.input<typeof Doorbell>;

/** The most forwards: two instances that take each other for the owner would go on forwarding otherwise. */
export const HOPS_MAX = 3;

/** Room for a doorbell with some more fields, but not for a payload. */
export const DOORBELL_BYTES_MAX = 4_096;

export function writeDoorbell(message: NewDoorbell): string {
  const text = JSON.stringify(Doorbell.parse(message));
  const bytes = Buffer.byteLength(text);
  if (bytes > DOORBELL_BYTES_MAX)
    throw new RangeError(
      `a doorbell has ${bytes} bytes, expected at most ${DOORBELL_BYTES_MAX}; payloads belong beside the job's record`,
    );
  return text;
}

/** Parses a doorbell; `undefined` if no sender can have written it. */
export function readDoorbell(text: string): Doorbell | undefined {
  // Invalid UTF-8 arrives with replacement characters, and might still parse.
  if (text.includes("\ufffd") || Buffer.byteLength(text) > DOORBELL_BYTES_MAX) return undefined;
  try {
    return Doorbell.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
