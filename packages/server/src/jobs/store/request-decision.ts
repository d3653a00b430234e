import { TenureError } from "@tenure/protocol";
import type { HotStore } from "../../store/hot-store.ts";
import type { JobRecord } from "../job.ts";
import { type BindingCandidate, type Bound, bind } from "./binding-store.ts";
import { readJob, voidJob } from "./job-store.ts";

/**
 * How often a decision starts over because the request changed hands meanwhile. Two rivals that each stop halfway take two
 * tries; the bound keeps a binding that never gives way from blocking a submit.
 */
export const TRIES_MAX = 8;

/** Decides which job the request has: the candidate, whose record is written, or the one bound before. */
export async function decideRequest(
  hot: HotStore,
  candidate: BindingCandidate,
  first?: Bound,
): Promise<"ours" | "reused" | JobRecord> {
  let bound = first ?? (await bind(hot, candidate));
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    if (bound.outcome === "bound") return "ours";
    const record = await readJob(hot, bound.jobId, { result: true });
    if (record) return bound.outcome === "reused" ? "reused" : record;
    // The bound job has no record, and after this it cannot get one.
    if ((await voidJob(hot, bound.jobId)) === "void")
      bound = await bind(hot, candidate, bound.jobId);
  }
  if (bound.outcome === "bound") return "ours";
  throw undecided(candidate.requestId);
}

export const undecided = (requestId: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", {
    dependency: "the hot store",
    reason: `could not decide which job request ${requestId} has; submit it again`,
  });
