import type { JobRecord } from "./job-record.ts";
import { stateLimitMs } from "./live-job.ts";

/** What is to be done about a job that the index handed over. */
export type DueAction =
  /** Nothing more: it has no record. */
  | { do: "leave" }
  /** Somebody has it in hand. */
  | { do: "look_again"; inMs: number }
  /** Its submitter has not said that it is the request's job. */
  | { do: "bind" }
  /** It waits for a node, and nobody does anything about it. */
  | { do: "adopt" }
  | { do: "give_up" }
  | { do: "retry"; reason: "ack_timeout" | "run_timeout" }
  /** It should be running: see whether its node still holds its slot. */
  | { do: "check_slot"; inMs: number }
  /** It has ended, and something of that is left to do. */
  | { do: "conclude"; released: boolean };

/** How long nobody looks at a job that somebody has in hand. */
export const LOOK_AGAIN_MS = 5_000;

/**
 * A pure function of the record: any instance comes to the same answer, so any instance can finish what another
 * began. `isHeld`: the instance that took it in is alive, and not this one.
 */
export function dueAction(
  record: JobRecord | undefined,
  { nowMs, isHeld }: { nowMs: number; isHeld: boolean },
): DueAction {
  if (!record) return { do: "leave" };
  const { state, attemptId } = record;
  if (state === "FINISHED" || state === "RELEASED")
    return { do: "conclude", released: state === "RELEASED" };
  const sinceMs = state === "CREATED" ? record.attemptMs : record.stateMs;
  const leftMs = sinceMs + (stateLimitMs(record) ?? 0) - nowMs;
  const inMs = Math.min(Math.max(leftMs, 0) + GRACE_MS, LOOK_AGAIN_MS);
  if (state === "CREATED") {
    // Only the first attempt is surely with the instance that took the job in.
    if (isHeld && attemptId === 1 && leftMs > -GRACE_MS) return { do: "look_again", inMs };
    if (!record.persisted) return { do: "bind" };
    return leftMs > 0 ? { do: "adopt" } : { do: "give_up" };
  }
  // Whoever has it in hand acts at the deadline itself; the others come a little later.
  if (leftMs > -GRACE_MS) return { do: "check_slot", inMs };
  return { do: "retry", reason: state === "DISPATCHED" ? "ack_timeout" : "run_timeout" };
}

const GRACE_MS = 1_000;
