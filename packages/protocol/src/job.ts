import * as z from "zod";
import {
  AttemptId,
  DurationMs,
  InstanceId,
  JobId,
  Json,
  NodeId,
  Pool,
  RequestId,
  Service,
  SessionId,
  Timestamp,
  TraceId,
  TurnId,
  text,
} from "./formats.ts";

export const JOB_STATES = [
  "CREATED",
  "DISPATCHED",
  "ACCEPTED",
  "RUNNING",
  "FINISHED",
  "RELEASED",
] as const;
export const JobState = z.enum(JOB_STATES);
export type JobState = z.infer<typeof JobState>;

export const JOB_OUTCOMES = [
  "succeeded",
  "failed",
  "cancelled",
  "timed_out",
  "no_node",
  "attempts_exhausted",
] as const;
export const JobOutcome = z.enum(JOB_OUTCOMES);
export type JobOutcome = z.infer<typeof JobOutcome>;

/** Higher first. */
const PRIORITY_MAX = 9;
export const Priority = z.int().min(0).max(PRIORITY_MAX);
export type Priority = z.infer<typeof Priority>;

/** At least 1: a limit of 0 would end the job before it began. */
export const TimeoutMs = DurationMs.min(1);

/** How long a job may wait for a node. For longer waits a client submits again. */
const PENDING_MS_MAX = 3_600_000;
const PendingMs = DurationMs.min(1).max(PENDING_MS_MAX);

/** 366 days. */
export const DELAY_MS_MAX = 31_622_400_000;

/** How long an HTTP request may wait for the end of a job. */
export const JobWaitMs = DurationMs.max(600_000);

const DAY_MS = 86_400_000;

/** The attempts of a job, and the pauses between those that failed: `backoff_ms` at first, `factor` times longer each time. */
export const JobRetry = z.object({
  attempts: z.int().min(1).max(100).optional(),
  backoff_ms: DurationMs.max(DAY_MS).optional(),
  backoff_max_ms: DurationMs.max(DAY_MS).optional(),
  factor: z.number().min(1).max(10).optional(),
});
export type JobRetry = z.infer<typeof JobRetry>;

/** A job as it is submitted, by socket or by HTTP. */
export const JobSpec = z.object({
  request_id: RequestId,
  pool: Pool,
  payload: Json,
  service: Service.optional(),
  priority: Priority.optional(),
  timeout_ms: TimeoutMs.optional(),
  pending_ms: PendingMs.optional(),
  trace_id: TraceId.optional(),
  /** The job survives the loss of the hot store. Default: jobs without a session. */
  durable: z.boolean().optional(),
  /** Not before this time, or after this long. Such a job is durable. */
  run_at: Timestamp.optional(),
  delay_ms: DurationMs.max(DELAY_MS_MAX).optional(),
  retry: JobRetry.optional(),
});
export type JobSpec = z.infer<typeof JobSpec>;

/** A worker may use codes of its own, so any short text is valid. */
export const JobError = z.object({ code: text(128).min(1), message: text(4_096) });
export type JobError = z.infer<typeof JobError>;

/** The error in a node's result: whether another node may succeed, and which service was missing. */
export const NodeJobError = JobError.extend({
  retryable: z.boolean().optional(),
  service: Service.optional(),
});
export type NodeJobError = z.infer<typeof NodeJobError>;

/** One attempt of one job: the unit of slots and heartbeats. */
export const JobAttempt = z.object({ job_id: JobId, attempt_id: AttemptId });
export type JobAttempt = z.infer<typeof JobAttempt>;

/** Whether a job of a turn went to the turn's node, or why not. */
const AFFINITY_OUTCOMES = ["hit", "no_turn", "first", "offline", "not_in_pool", "no_slot"] as const;
export const AffinityOutcome = z.enum(AFFINITY_OUTCOMES);
export type AffinityOutcome = z.infer<typeof AffinityOutcome>;

/** One step in the life of a job. */
export const JobTimelineEntry = z.object({
  at: Timestamp,
  state: JobState,
  attempt_id: AttemptId,
  node_id: NodeId.optional(),
  instance_id: InstanceId.optional(),
  reason: z.string().optional(),
});
export type JobTimelineEntry = z.infer<typeof JobTimelineEntry>;

export const Job = z.object({
  job_id: JobId,
  request_id: RequestId,
  pool: Pool,
  state: JobState,
  attempt_id: AttemptId,
  node_id: NodeId.optional(),
  outcome: JobOutcome.optional(),
  body: Json.optional(),
  error: JobError.optional(),
  created_at: Timestamp,
  ended_at: Timestamp.optional(),
  timeline: z.array(JobTimelineEntry),
  session_id: SessionId.optional(),
  turn_id: TurnId.optional(),
  affinity: AffinityOutcome.optional(),
  service: Service.optional(),
  priority: Priority.optional(),
  trace_id: TraceId.optional(),
});
export type Job = z.infer<typeof Job>;
