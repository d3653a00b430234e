import {
  CAPACITY_MAX,
  type Deferred,
  type JobAssign,
  type JobAttempt,
  type TenureError,
} from "@tenure/protocol";
import type { Cancel } from "../clock.ts";

/** A job as `run` gets it. */
export interface WorkerJob<Payload = unknown> extends Omit<JobAssign, "type" | "acks" | "payload"> {
  /** As `JSON.parse` reads it: a number is the nearest double, though the exact text was sent. */
  payload: Payload;
}

export interface RunContext {
  /** Aborts when the job is cancelled, is replaced by a newer attempt, times out, or the worker closes. */
  readonly signal: AbortSignal;
  /** Sends progress to the session. Progress is lost while there is no connection; the result is not. */
  progress(body: unknown): void;
}

export type Run<Payload> = (job: WorkerJob<Payload>, context: RunContext) => unknown;

/**
 * One attempt of a job.
 *
 *     queued   waits for a slot
 *     running  `run` was called, or is about to be
 *     done     its result is in the outbox
 *
 * queued → running → done. Draining and time limits end a queued or running attempt early.
 */
export interface Attempt {
  readonly job: WorkerJob;
  state: "queued" | "running" | "done";
  /** By the monotonic clock. */
  readonly assignedAtMs: number;
  startedAtMs: number | undefined;
  /** Whether the server was sent an acknowledgement, or a report that implies one. */
  isAcknowledged: boolean;
  /** Whether the server was sent a report of the start. */
  isReported: boolean;
  /** Made on the first access to `signal`: most jobs never use it. */
  controller: AbortController | undefined;
  /** Why it was stopped; set also when `signal` was never used. */
  stopped: TenureError | undefined;
  cancelTimer: Cancel;
}

/** Stops the attempt with the first reason given. */
export function abort(attempt: Attempt, reason: TenureError): void {
  attempt.stopped ??= reason;
  attempt.controller?.abort(attempt.stopped);
}

/** The steps that the next report of the attempt implies, for a server that granted `deferred_start`. */
export const impliedBy = (
  { assignedAtMs, startedAtMs, isAcknowledged, isReported }: Attempt,
  nowMs: number,
): Deferred => ({
  ...(!isAcknowledged && { accepted_ms_ago: Math.round(nowMs - assignedAtMs) }),
  ...(!isReported &&
    startedAtMs !== undefined && { started_ms_ago: Math.round(nowMs - startedAtMs) }),
});

export const listed = (attempts: readonly Attempt[]): JobAttempt[] =>
  attempts
    .slice(0, CAPACITY_MAX)
    .map(({ job: { job_id, attempt_id } }) => ({ job_id, attempt_id }));

export const createAttempt = (job: WorkerJob, assignedAtMs: number): Attempt => ({
  ...{ job, state: "queued", assignedAtMs, startedAtMs: undefined },
  ...{ isAcknowledged: false, isReported: false },
  ...{ controller: undefined, stopped: undefined, cancelTimer: () => {} },
});
