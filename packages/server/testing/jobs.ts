import type { JobStep } from "../src/jobs/policy/job-table.ts";
import type { NewJob } from "../src/jobs/store/job-store.ts";
import { systemRandom, uuid7 } from "../src/kernel/random.ts";

/** Ids as an instance makes them: later ones sort later. */
export function newJobId(wallMs: number = Date.now()): string {
  return uuid7(systemRandom, wallMs);
}

/** A job that nobody has seen yet. */
export function newJob(changes: Partial<NewJob> = {}): NewJob {
  const jobId = changes.jobId ?? newJobId();
  return {
    jobId,
    tenant: "default",
    requestId: `r-${jobId}`,
    bodyHash: "hash",
    payload: '{"say":"hello"}',
    pool: "p",
    priority: 0,
    turn: false,
    originInstanceId: "i1",
    pendingTimeoutMs: 10_000,
    ackTimeoutMs: 5_000,
    runTimeoutMs: 30_000,
    attemptsMax: 3,
    ...changes,
  };
}

/** Node ids as they look: base58, 32 to 44 letters. */
export const NODE_A = "A".repeat(44);
export const NODE_B = "B".repeat(44);

export const lost: JobStep = { event: "reassign", reason: "node lost", counts: true, avoid: true };
