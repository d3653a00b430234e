import { type JobRecord, stateLimitMs } from "../job.ts";

/** After so long without a renewal another instance checks whether the job is orphaned. */
export const RECOVER_AFTER_MS = 2_000;

/** What to do about a job taken from the recovery index. */
export type RecoveryAction =
  /** The job has no record: it leaves the index. */
  | { do: "leave" }
  /** Its submit stopped before the job was bound to its request. */
  | { do: "bind" }
  /** The job waits for a node, and no instance tracks it. */
  | { do: "adopt" }
  | { do: "give_up" }
  | { do: "retry"; reason: "instance_lost" | "run_timeout" }
  /** The job should be running: check that its node still has its slot. */
  | { do: "check_slot"; inMs: number }
  /** The job has ended, and its conclusion is incomplete. */
  | { do: "conclude"; released: boolean };

/** The pause between two checks of a job that should be running. */
export const LOOK_AGAIN_MS = 5_000;

/**
 * A pure function of the record: every instance comes to the same answer, so that any of them can continue for another. An
 * instance renews its waiting jobs in the index, so a waiting job that is overdue is orphaned.
 */
export function recoveryAction(record: JobRecord | undefined, nowMs: number): RecoveryAction {
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
  // The tracking instance acts at the deadline; the others come a little later.
  if (leftMs > -GRACE_MS) return { do: "check_slot", inMs };
  // No instance was there to send it again or to wait for the answer: the attempt does not count.
  const isSilent = state === "DISPATCHED" && record.takenBy === undefined;
  return { do: "retry", reason: isSilent ? "instance_lost" : "run_timeout" };
}

const GRACE_MS = 1_000;
