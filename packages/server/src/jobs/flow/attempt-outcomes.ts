import { type JobError, type JobOutcome, TenureError } from "@tenure/protocol";
import { failpoint } from "#failpoint";
import {
  type AttemptEnd,
  type JobEnd,
  jobEndOf,
  needOf,
  resultText,
  type TrackedJob,
} from "../job.ts";
import type { PendingReports } from "../memory/pending-reports.ts";
import type { JobsParts } from "../parts.ts";
import { exclusionText } from "../policy/node-selection.ts";
import {
  afterFailure,
  backOffMs,
  type FailureStep,
  isCounted,
  isNodeLostByJob,
  jobError,
  type RetryReason,
  reasonText,
} from "../policy/retry-policy.ts";
import { keepBinding } from "../store/binding-store.ts";
import type { EndedJob } from "../store/ended-store.ts";
import { readJob } from "../store/job-store.ts";
import { type Advanced, advance } from "../store/transition-store.ts";
import { logUnlessStoreDown } from "../store-errors.ts";
import type { Turns } from "../turns/turns.ts";
import type { ResultDelivery } from "./result-delivery.ts";
import type { Retention } from "./retention.ts";
import type { Slots } from "./slots.ts";
import type { Next } from "./step.ts";

/** The pause before a deadline that could not be handled is handled again. */
const RETRY_PAUSE_MS = 500;

interface Collaborators {
  slots: Pick<Slots, "free">;
  turns: Pick<Turns, "placedOrEnded">;
  results: Pick<ResultDelivery, "deliver">;
  retention: Pick<Retention, "bytesOf" | "ended">;
  pendingReports: Pick<PendingReports, "has">;
}

type Parts = Pick<
  JobsParts,
  | "hot"
  | "instanceId"
  | "clock"
  | "log"
  | "metrics"
  | "tracing"
  | "tracked"
  | "nodePool"
  | "settings"
  | "storeClock"
>;

/** The ends of attempts and of jobs: retry, give up, cancel, finish, expire. */
export class AttemptOutcomes {
  readonly #parts: Parts;
  readonly #with: Collaborators;
  readonly #next: Next;

  constructor(parts: Parts, collaborators: Collaborators, next: Next) {
    this.#parts = parts;
    this.#with = collaborators;
    this.#next = next;
  }

  /** Ends this attempt, then begins another or ends the job. */
  async retry(job: TrackedJob, reason: RetryReason, detail = ""): Promise<void> {
    const { hot, instanceId, tracked } = this.#parts;
    const step = await this.afterFailure(job, reason, detail);
    const { jobId, attemptId, nodeId } = job;
    if (step.event === "give_up") return this.#giveUp(job, step, reasonText(reason, detail));
    const advanced = await advance(hot, { jobId, attemptId, nodeId, instanceId, steps: [step] });
    const answer = advanced.outcome === "answered" ? advanced.answers[0] : "absent";
    if (advanced.outcome === "absent" || (answer !== "applied" && answer !== "exhausted")) {
      // Another instance has moved the job on, or the job has ended.
      tracked.release(job);
      return;
    }
    job.countedAttempts = advanced.countedAttempts;
    // More attempts were counted than this instance knew of.
    if (answer === "exhausted") return this.retry(job, reason, detail);
    if (nodeId) this.#cancelOnNode({ jobId, attemptId, nodeId }, reasonText(reason, detail));
    this.beginAttempt(job, advanced, reason);
  }

  /** The step that ends the attempt, for a caller that writes it together with others. */
  async afterFailure(job: TrackedJob, reason: RetryReason, detail: string): Promise<FailureStep> {
    const isLast = job.countedAttempts > 0 && job.countedAttempts + 1 >= job.attemptsMax;
    if (isLast && isCounted(job, reason)) await this.#recount(job);
    return afterFailure(job, reason, detail);
  }

  /** Another instance may have taken attempts off the count. The record is read before the count ends a job. */
  async #recount(job: TrackedJob): Promise<void> {
    const record = await readJob(this.#parts.hot, job.jobId);
    if (record?.attemptId === job.attemptId) job.countedAttempts = record.countedAttempts;
  }

  /** The next attempt is written: tracks the job, also if it was not tracked here, and places it after the back-off. */
  beginAttempt(job: TrackedJob, advanced: Advanced, reason: RetryReason): void {
    const { metrics, tracing, clock, tracked } = this.#parts;
    const { jobId, attemptId, nodeId } = job;
    metrics.retried(reason);
    tracing.attemptEnded(job, reason);
    if (nodeId) this.#with.slots.free(nodeId, { jobId, attemptId }).catch(() => {});
    if (nodeId) job.former.add(nodeId);
    job.isSuspect ||= isNodeLostByJob(job, reason);
    job.state = "CREATED";
    job.attemptId = advanced.attemptId;
    job.countedAttempts = advanced.countedAttempts;
    job.nodeId = undefined;
    job.need = needOf(job.service, job);
    job.affinity = "no_turn";
    job.attemptSinceMs = clock.monotonicMs();
    tracked.track(job);
    const pauseMs = backOffMs(job);
    if (pauseMs > 0) tracked.setDeadline(job, "back_off", pauseMs);
    else void this.#next({ do: "place", job });
  }

  endBackOff(job: TrackedJob): void {
    const isWaiting = this.#parts.tracked.waiting.has(job.jobId);
    if (job.state === "CREATED" && !isWaiting) void this.#next({ do: "place", job });
  }

  async #giveUp(
    job: TrackedJob,
    { outcome, error }: { outcome: Exclude<JobOutcome, "succeeded">; error: JobError },
    reason: string,
  ): Promise<void> {
    const { hot, instanceId, tracked } = this.#parts;
    const { jobId, attemptId, nodeId } = job;
    const result = resultText({ error });
    const step = { event: "give_up", outcome, reason } as const;
    const advanced = await advance(hot, { jobId, attemptId, instanceId, steps: [step], result });
    if (advanced.outcome === "absent" || advanced.answers[0] !== "applied") {
      tracked.release(job);
      return;
    }
    const former = nodeId ?? advanced.formerNodeId;
    if (former) this.#cancelOnNode({ jobId, attemptId, nodeId: former }, reason);
    const { listeners } = advanced;
    this.finish(job, { outcome, attemptId, nodeId: former, result, listeners });
  }

  async cancel(job: TrackedJob): Promise<Advanced | { outcome: "absent" }> {
    const { hot, instanceId } = this.#parts;
    const { jobId, attemptId } = job;
    const error = jobError(new TenureError("JOB_CANCELLED", { job_id: jobId }));
    const result = resultText({ error });
    const step = { event: "give_up", outcome: "cancelled", reason: "cancelled" } as const;
    const advanced = await advance(hot, { jobId, attemptId, instanceId, steps: [step], result });
    if (advanced.outcome === "answered" && advanced.answers[0] === "applied") {
      const nodeId = advanced.formerNodeId;
      if (nodeId) this.#cancelOnNode({ jobId, attemptId, nodeId }, "cancelled");
      const { listeners } = advanced;
      this.finish(job, { outcome: "cancelled", attemptId, nodeId, result, listeners });
    }
    return advanced;
  }

  /** FINISHED is written by this instance: releases the job and concludes it. */
  finish(job: TrackedJob, end: AttemptEnd): void {
    const { tracked, metrics, tracing, log } = this.#parts;
    const { jobId } = job;
    tracked.release(job);
    metrics.finished(end.outcome, end.attemptId);
    tracing.jobEnded(job, end);
    this.#with.turns.placedOrEnded(job);
    this.conclude(jobEndOf(job, end), { isReleased: false }).catch(
      logUnlessStoreDown(
        log,
        { event: "job.not-concluded", jobId },
        "could not conclude ended job; the recovery worker will",
      ),
    );
  }

  /**
   * Delivers the result, frees the slot, writes RELEASED. `isReleased`: the last two are done. `isRecovered`: another instance
   * may have begun with it. Rejects when the store is down.
   */
  async conclude(
    end: JobEnd,
    { isReleased, isRecovered = false }: { isReleased: boolean; isRecovered?: boolean },
  ): Promise<void> {
    await failpoint("result.after-finished");
    const { jobId, tenant, isEvicted, result } = end;
    const bytes = isEvicted ? 0 : this.#with.retention.bytesOf(result);
    // The session need not wait until the slot is free. Returned, not awaited: until the session acknowledges, only the job
    // id and a size may stay in memory, not the result.
    const delivered = this.#with.results.deliver(end, { isRecovered });
    return this.#leaveAfter(
      { jobId, tenant, bytes },
      Promise.all([delivered, isReleased ? undefined : this.#release(end)]),
    );
  }

  async #leaveAfter(ended: EndedJob, work: Promise<["out" | "stay", unknown]>): Promise<void> {
    const [delivered] = await work;
    await failpoint("result.after-delivered");
    await this.#with.retention.ended(ended, { leaves: delivered === "out" });
  }

  async #release(end: JobEnd): Promise<void> {
    const { hot, instanceId, settings } = this.#parts;
    const { jobId, attemptId, nodeId } = end;
    const keepMs = settings.retentionMs;
    // Before RELEASED: if the instance stops in between, the recovery worker does both again.
    await Promise.all([
      nodeId && this.#with.slots.free(nodeId, { jobId, attemptId }),
      keepBinding(hot, end, keepMs),
    ]);
    await failpoint("result.after-freed");
    const steps = [{ event: "released", keepMs }] as const;
    await advance(hot, { jobId, attemptId, instanceId, steps });
    await failpoint("result.after-released");
  }

  /** The limit of the job's state is over. */
  expire(job: TrackedJob): void {
    const { tracked, log } = this.#parts;
    const { jobId } = job;
    if (this.#with.pendingReports.has(jobId)) {
      tracked.setDeadline(job, "state", RETRY_PAUSE_MS);
      return;
    }
    const onError = logUnlessStoreDown(
      log,
      { event: "job.deadline-missed", jobId },
      "could not end an attempt that is out of time; will retry",
    );
    this.#endOverdue(job).catch((error) => {
      tracked.setDeadline(job, "state", RETRY_PAUSE_MS);
      onError(error);
    });
  }

  async #endOverdue(job: TrackedJob): Promise<void> {
    const { tracked, clock, nodePool, storeClock } = this.#parts;
    if (job.state !== "CREATED")
      return this.retry(job, job.state === "DISPATCHED" ? "ack_timeout" : "run_timeout");
    const outageMs = storeClock.lastOutageMs();
    if (outageMs > job.attemptSinceMs) {
      // While the store was down no node could be reserved. The full limit counts from the outage.
      job.attemptSinceMs = outageMs;
      const waitedMs = clock.monotonicMs() - outageMs;
      return tracked.setDeadline(job, "state", job.pendingTimeoutMs - waitedMs);
    }
    const excluded = exclusionText(nodePool.all(), job);
    const error = jobError(new TenureError("NO_AVAILABLE_NODE", { pool: job.pool }), excluded);
    return this.#giveUp(job, { outcome: "no_node", error }, `no node in time: ${excluded}`);
  }

  #cancelOnNode(
    attempt: { jobId: string; attemptId: number; nodeId: string },
    reason: string,
  ): void {
    void this.#next({ do: "cancel_on_node", attempt, reason });
  }
}
