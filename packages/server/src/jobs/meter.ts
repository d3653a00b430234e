import type { AffinityOutcome, JobOutcome } from "@tenure/protocol";

/** What jobs count, for the metrics. */
export interface JobMeter {
  /** A request to run a job was answered. */
  submitted(result: "accepted" | "duplicate" | "refused"): void;
  /** From this instance's taking a job in hand to its message to the node. */
  dispatched(seconds: number): void;
  /** An attempt ended and another begins. */
  retried(reason: RetryReason): void;
  finished(outcome: JobOutcome, attempts: number): void;
  /** What a node said of a job, by what it changed. */
  reported(kind: "ack" | "started" | "progress" | "result", answer: string): void;
  /** The due index handed over a job that somebody should have finished. */
  rescued(action: string): void;
  stormReported(result: "marked" | "already" | "limited"): void;
  affinity(outcome: AffinityOutcome): void;
  /** Once a second or so. */
  observed(figures: { waiting: number; oldestWaitSeconds: number; live: number }): void;
  /** What is kept of ended jobs by all instances, as far as it is known here. */
  ended(figures: { jobs: number; bytes: number }): void;
  /** Ended jobs lost their results and timelines before their time. */
  bodiesDropped(count: number): void;
  slotsLeaked(count: number): void;
  turnsLeft(count: number): void;
}

/** Why an attempt ended and the job went elsewhere. */
export const RETRY_REASONS = [
  "ack_timeout",
  "run_timeout",
  "node_lost",
  "node_draining",
  "failed",
  "model_not_available",
  "inbox_full",
  "instance_lost",
] as const;
export type RetryReason = (typeof RETRY_REASONS)[number];
