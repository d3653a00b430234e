import { stateLimitMs } from "../memory/tracked-jobs.ts";
import type { JobRecord } from "../store/job-codec.ts";

/** What is to be done about a job that the index handed over. */
export type DueAction =
  /** Nothing more: it has no record. */
  | { do: "leave" }
  /** Its submitter has not said that it is the request's job. */
  | { do: "bind" }
  /** It waits for a node, and nobody does anything about it. */
  | { do: "adopt" }
  | { do: "give_up" }
  | { do: "retry"; reason: "instance_lost" | "run_timeout" }
  /** It should be running: see whether its node still holds its slot. */
  | { do: "check_slot"; inMs: number }
  /** It has ended, and something of that is left to do. */
  | { do: "conclude"; released: boolean };

/** How long nobody looks at a job that should be running. */
export const LOOK_AGAIN_MS = 5_000;

/**
 * A pure function of the record: any instance comes to the same answer, so any instance can finish what another
 * began. Whoever has a job waiting says so in the index, so one that comes up here is nobody's.
 */
export function dueAction(record: JobRecord | undefined, nowMs: number): DueAction {
  if (!record) return { do: "leave" };
  const { state } = record;
  if (state === "FINISHED" || state === "RELEASED")
    return { do: "conclude", released: state === "RELEASED" };
  const sinceMs = state === "CREATED" ? record.attemptMs : record.stateMs;
  const leftMs = sinceMs + (stateLimitMs(record) ?? 0) - nowMs;
  const inMs = Math.min(Math.max(leftMs, 0) + GRACE_MS, LOOK_AGAIN_MS);
  if (state === "CREATED") {
    if (!record.persisted) return { do: "bind" };
    return leftMs > 0 ? { do: "adopt" } : { do: "give_up" };
  }
  // Whoever has it in hand acts at the deadline itself; the others come a little later.
  if (leftMs > -GRACE_MS) return { do: "check_slot", inMs };
  // Nobody was there to send it again or to wait for the answer: that is not the job's fault.
  return { do: "retry", reason: state === "DISPATCHED" ? "instance_lost" : "run_timeout" };
}

const GRACE_MS = 1_000;
