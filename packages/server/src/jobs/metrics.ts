import type { AffinityOutcome, JobOutcome } from "@tenure/protocol";
import type { RetryReason } from "./policy/retry-policy.ts";

export type ReportKind = "ack" | "started" | "progress" | "result";

/** The figures of jobs. */
export interface JobMetrics {
  submitted(result: "accepted" | "duplicate" | "refused"): void;
  /** From the start of tracking on this instance to the message to the node. */
  dispatched(seconds: number): void;
  retried(reason: RetryReason): void;
  finished(outcome: JobOutcome, attempts: number): void;
  /** A report of a node, by the answer of the record. */
  reported(kind: ReportKind, answer: string): void;
  /** The recovery worker acted on a job. */
  rescued(action: string): void;
  stormReported(result: "marked" | "already" | "limited"): void;
  affinity(outcome: AffinityOutcome): void;
  /** About once a second. */
  observed(figures: { waiting: number; oldestWaitSeconds: number; live: number }): void;
  /** Ended jobs kept by all instances, as far as this one knows. */
  ended(figures: { jobs: number; bytes: number }): void;
  /** Ended jobs lost their results and timelines early, to make room. */
  bodiesDropped(count: number): void;
  slotsLeaked(count: number): void;
  turnsLeft(count: number): void;
}
