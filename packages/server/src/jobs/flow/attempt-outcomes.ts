import { type JobError, type JobOutcome, TenureError } from "@tenure/protocol";
import { failpoint, hasFailpoints } from "#failpoint";
import { type Condition, Gathered, SKIPPED } from "../../store/call.ts";
import {
  type AttemptEnd,
  type AttemptPlace,
  type JobAttempt,
  type JobEnd,
  jobEndOf,
  needOf,
  resultText,
  type TrackedJob,
} from "../job.ts";
import type { PendingReports } from "../memory/pending-reports.ts";
import type { JobsParts } from "../parts.ts";
import type { JobStep } from "../policy/job-table.ts";
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
  retryPauseMs,
} from "../policy/retry-policy.ts";
import type { DurableJobs } from "../rows/durable-jobs.ts";
import type { Raised } from "../rows/row-store.ts";
import { keepBinding, keepBindingIf } from "../store/binding-store.ts";
import type { EndedJob } from "../store/ended-store.ts";
import { readJob } from "../store/job-store.ts";
import { leaveRecoveryIndex } from "../store/recovery-index-store.ts";
import {
  type Advance,
  type AdvanceAnswer,
  type Advanced,
  advance,
  advanceIf,
  isApplied,
  startAdvance,
} from "../store/transition-store.ts";
import { isStoreDown, logUnlessStoreDown } from "../store-errors.ts";
import type { Turns } from "../turns/turns.ts";
import type { ResultDelivery } from "./result-delivery.ts";
import type { Retention } from "./retention.ts";
import type { Slots } from "./slots.ts";
import type { Next, WrittenWithEnd } from "./step.ts";

/** The pause before a deadline that could not be handled is handled again. */
const RETRY_PAUSE_MS = 500;

interface Collaborators {
  slots: Pick<Slots, "free">;
  turns: Pick<Turns, "placedOrEnded">;
  results: Pick<ResultDelivery, "announceIf" | "deliver">;
  retention: Pick<Retention, "bytesOf" | "ended">;
  pendingReports: Pick<PendingReports, "has">;
  durable: Pick<DurableJobs, "raise" | "end" | "recordFromRow">;
}

type Parts = Pick<
  JobsParts,
  | "hot"
  | "instanceId"
  | "clock"
  | "random"
  | "log"
  | "metrics"
  | "tracing"
  | "tracked"
  | "nodePool"
  | "settings"
  | "storeClock"
>;

interface ConcludeOptions {
  isReleased: boolean;
  isRecovered?: boolean;
  written?: WrittenWithEnd | undefined;
}

/** The end of a job that was started with its release. */
interface StartedEnd {
  answer: Promise<AdvanceAnswer>;
  written: WrittenWithEnd;
}

/** The ends of attempts and of jobs: retry, give up, cancel, finish, expire. */
export class AttemptOutcomes {
  readonly #parts: Parts;
  readonly #with: Collaborators;
  readonly #next: Next;
  readonly #stopping = new AbortController();

  constructor(parts: Parts, collaborators: Collaborators, next: Next) {
    this.#parts = parts;
    this.#with = collaborators;
    this.#next = next;
  }

  /** Ends this attempt, then begins another or ends the job. */
  async retry(job: TrackedJob, reason: RetryReason, detail = ""): Promise<void> {
    if (!job.durable) return this.#retry(job, reason, detail);
    try {
      await this.#retry(job, reason, detail);
    } catch (error) {
      if (!isStoreDown(error)) throw error;
      void this.#retryLater(job, reason, detail);
    }
  }

  /** Without Postgres a durable job gets no further attempt. Its reason is kept here, and the record as it is. */
  async #retryLater(job: TrackedJob, reason: RetryReason, detail: string): Promise<void> {
    await this.#parts.clock.sleep(RETRY_PAUSE_MS, this.#stopping.signal);
    if (!this.#stopping.signal.aborted) void this.#next({ do: "retry", job, reason, detail });
  }

  stop(): void {
    this.#stopping.abort();
  }

  async #retry(job: TrackedJob, reason: RetryReason, detail: string): Promise<void> {
    const { hot, instanceId, tracked } = this.#parts;
    const step = await this.afterFailure(job, reason, detail);
    const { jobId, attemptId, nodeId } = job;
    if (step.event === "give_up") return this.#giveUp(job, step, reasonText(reason, detail));
    const raised = await this.raise(job, step);
    if (raised === "over") return this.#endAsRow(job);
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
    this.beginAttempt(job, advanced, { reason, raised });
  }

  /** The step that ends the attempt, for a caller that writes it together with others. */
  async afterFailure(job: TrackedJob, reason: RetryReason, detail: string): Promise<FailureStep> {
    const isLast = job.countedAttempts > 0 && job.countedAttempts + 1 >= job.attemptsMax;
    if (isLast && isCounted(job, reason)) await this.#recount(job);
    return afterFailure(job, reason, detail);
  }

  /** Writes the next attempt of a durable job into its row. With a back-off it waits there. */
  async raise(job: TrackedJob, step: JobStep): Promise<Raised> {
    if (!job.durable || step.event !== "reassign") return "raised";
    const countedAttempts = job.countedAttempts + (step.counts ? 1 : 0);
    const pauseMs = step.counts ? this.#pauseMs(job, countedAttempts) : 0;
    const backOffMs = pauseMs > 0 ? pauseMs : undefined;
    return this.#with.durable.raise(job, { countedAttempts, backOffMs });
  }

  #pauseMs({ retry }: TrackedJob, countedAttempts: number): number {
    return retryPauseMs(retry, countedAttempts, this.#parts.random.fraction());
  }

  /**
   * The row has ended, or has another attempt. An instance may have stopped after it had ended the row: then the record ends
   * like the row.
   */
  async #endAsRow(job: TrackedJob): Promise<void> {
    const { hot, instanceId, tracked } = this.#parts;
    const { jobId, attemptId, nodeId } = job;
    const row = await this.#with.durable.recordFromRow(jobId);
    const { outcome, result = "{}" } = row ?? {};
    if (!outcome) return void tracked.release(job);
    const step: JobStep =
      outcome === "succeeded"
        ? { event: "result", outcome, reserved: true }
        : { event: "give_up", outcome };
    const call = { jobId, attemptId, nodeId, instanceId, steps: [step], result };
    const advanced = await advance(hot, call);
    if (advanced.outcome === "absent" || advanced.answers[0] !== "applied")
      return void tracked.release(job);
    const { listeners } = advanced;
    this.finish(job, { outcome, attemptId, nodeId, result, listeners });
  }

  /** Whether a durable job ends by this, as its row decides. A row that was removed decides nothing. */
  async #ends(job: TrackedJob, outcome: JobOutcome, error: JobError): Promise<boolean> {
    if (!job.durable) return true;
    const { jobId, attemptId } = job;
    const ended = await this.#with.durable.end({ jobId, attemptId, outcome, error });
    return ended !== "stale";
  }

  /** Another instance may have taken attempts off the count. The record is read before the count ends a job. */
  async #recount(job: TrackedJob): Promise<void> {
    const record = await readJob(this.#parts.hot, job.jobId);
    if (record?.attemptId === job.attemptId) job.countedAttempts = record.countedAttempts;
  }

  /** The next attempt is written: tracks the job, also if it was not tracked here, and places it after the back-off. */
  beginAttempt(
    job: TrackedJob,
    advanced: Advanced,
    { reason, raised }: { reason: RetryReason; raised: Raised },
  ): void {
    const { hot, metrics, tracing, clock, tracked } = this.#parts;
    const { jobId, attemptId, nodeId } = job;
    metrics.retried(reason);
    tracing.attemptEnded(job, reason);
    if (nodeId) this.#with.slots.free(nodeId, { jobId, attemptId }).catch(() => {});
    if (raised === "waiting") {
      // Its row opens it when the back-off is over.
      tracked.release(job);
      leaveRecoveryIndex(hot, [jobId]).catch(() => {});
      return;
    }
    const isCountedNow = isCounted(job, reason);
    if (nodeId) job.former.add(nodeId);
    job.isSuspect ||= isNodeLostByJob(job, reason);
    job.state = "CREATED";
    job.attemptId = advanced.attemptId;
    job.countedAttempts = advanced.countedAttempts;
    job.nodeId = undefined;
    job.takenBy = undefined;
    job.need = needOf(job.service, job);
    job.affinity = "no_turn";
    job.attemptSinceMs = clock.monotonicMs();
    tracked.track(job);
    const wantedMs = job.durable || !isCountedNow ? 0 : this.#pauseMs(job, job.countedAttempts);
    const pauseMs = Math.max(backOffMs(job), wantedMs);
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
    if (!(await this.#ends(job, outcome, error))) return this.#endAsRow(job);
    const step = { event: "give_up", outcome, reason } as const;
    const advanced = await advance(hot, { jobId, attemptId, instanceId, steps: [step], result });
    if (advanced.outcome === "absent" && job.durable)
      return this.finish(job, { outcome, attemptId, nodeId, result, listeners: [] });
    if (advanced.outcome === "absent" || advanced.answers[0] !== "applied") {
      tracked.release(job);
      return;
    }
    const former = nodeId ?? advanced.formerNodeId;
    if (former) this.#cancelOnNode({ jobId, attemptId, nodeId: former }, reason);
    const { listeners } = advanced;
    this.finish(job, { outcome, attemptId, nodeId: former, result, listeners });
  }

  /** `moved`: another attempt began meanwhile. */
  async cancel(job: TrackedJob): Promise<"done" | "moved" | "absent"> {
    const { hot, instanceId } = this.#parts;
    const { jobId, attemptId } = job;
    const error = jobError(new TenureError("JOB_CANCELLED", { job_id: jobId }));
    const result = resultText({ error });
    if (!(await this.#ends(job, "cancelled", error))) return "moved";
    const step = { event: "give_up", outcome: "cancelled", reason: "cancelled" } as const;
    const advanced = await advance(hot, { jobId, attemptId, instanceId, steps: [step], result });
    const isLost = advanced.outcome === "absent";
    if (isLost && !job.durable) return "absent";
    const answer = isLost ? "applied" : advanced.answers[0];
    if (answer === "applied") {
      const { formerNodeId: nodeId, listeners = [] } = isLost ? {} : advanced;
      if (nodeId) this.#cancelOnNode({ jobId, attemptId, nodeId }, "cancelled");
      this.finish(job, { outcome: "cancelled", attemptId, nodeId, result, listeners });
    }
    return answer === "stale" || answer === "ahead" ? "moved" : "done";
  }

  /**
   * Starts the steps of a call that may end its job, and with them what follows if the last one is applied, in the order of
   * `#release`: the slot is freed, the binding kept, RELEASED written. `undefined`: the steps do not end the job, or its turn
   * ends with it.
   */
  startEnd(job: TrackedJob, call: Advance & AttemptPlace): StartedEnd | undefined {
    const { hot, settings } = this.#parts;
    const last = call.steps.at(-1);
    if ((last?.event !== "result" && last?.event !== "give_up") || job.finalize) return undefined;
    const { jobId, tenant, requestId, sessionId, originInstanceId } = job;
    const { attemptId, nodeId } = call;
    const ended = startAdvance(hot, call);
    const applied = isApplied(ended);
    const written = new Gathered(3);
    const released = new Promise<boolean>((resolve, reject) => {
      written.whenComplete((all) => {
        advanceIf(hot, { all }, this.#releasedStep({ jobId, attemptId })).answer.then(
          (answer) => resolve(answer !== SKIPPED),
          reject,
        );
      });
      const onStarted = (freed: Condition) => written.add(freed);
      const slot = { jobId, attemptId, onlyIf: applied, onStarted };
      this.#with.slots.free(nodeId, slot).catch(reject);
    });
    released.catch(() => {}); // `#release` handles it
    const about = { jobId, attemptId, sessionId, originInstanceId };
    const announced = this.#with.results.announceIf(applied, about);
    written.add(applied);
    const keepMs = settings.retentionMs;
    written.add(keepBindingIf(hot, { all: [applied] }, { tenant, requestId, jobId, keepMs }));
    return { answer: ended.answer, written: { released, announced } };
  }

  /** FINISHED is written by this instance: releases the job and concludes it. */
  finish(job: TrackedJob, end: AttemptEnd, written?: WrittenWithEnd): void {
    const { tracked, metrics, tracing, log } = this.#parts;
    const { jobId } = job;
    tracked.release(job);
    metrics.finished(end.outcome, end.attemptId);
    tracing.jobEnded(job, end);
    this.#with.turns.placedOrEnded(job);
    this.conclude(jobEndOf(job, end), { isReleased: false, written }).catch(
      logUnlessStoreDown(
        log,
        { event: "job.not-concluded", jobId },
        "could not conclude ended job; the recovery worker will",
      ),
    );
  }

  /**
   * Delivers the result, frees the slot, writes RELEASED. `isReleased`: the last two are done. `written`: what was started
   * with the end. `isRecovered`: another instance may have begun with it. Rejects when the store is down.
   */
  async conclude(
    end: JobEnd,
    { isReleased, isRecovered = false, written }: ConcludeOptions,
  ): Promise<void> {
    if (hasFailpoints) await failpoint("result.after-finished");
    const { jobId, tenant, isEvicted, result } = end;
    const bytes = isEvicted ? 0 : this.#with.retention.bytesOf(result);
    // The session need not wait until the slot is free. Returned, not awaited: until the session acknowledges, only the job
    // id and a size may stay in memory, not the result.
    const delivered = this.#with.results.deliver(end, {
      isRecovered,
      announced: written?.announced,
    });
    return this.#leaveAfter(
      { jobId, tenant, bytes },
      Promise.all([delivered, isReleased ? undefined : this.#release(end, written?.released)]),
    );
  }

  async #leaveAfter(ended: EndedJob, work: Promise<["out" | "stay", unknown]>): Promise<void> {
    const [delivered] = await work;
    if (hasFailpoints) await failpoint("result.after-delivered");
    await this.#with.retention.ended(ended, { leaves: delivered === "out" });
  }

  async #release(end: JobEnd, released?: Promise<boolean>): Promise<void> {
    const { hot, settings } = this.#parts;
    const { jobId, attemptId, nodeId } = end;
    const isWritten = await released;
    // Before RELEASED: if the instance stops in between, the recovery worker does both again.
    if (!isWritten)
      await Promise.all([
        nodeId && this.#with.slots.free(nodeId, { jobId, attemptId }),
        keepBinding(hot, end, settings.retentionMs),
      ]);
    if (hasFailpoints) await failpoint("result.after-freed");
    if (!isWritten) await advance(hot, this.#releasedStep(end));
    if (hasFailpoints) await failpoint("result.after-released");
  }

  #releasedStep({ jobId, attemptId }: JobAttempt): Advance {
    const { instanceId, settings } = this.#parts;
    const steps = [{ event: "released", keepMs: settings.retentionMs }] as const;
    return { jobId, attemptId, instanceId, steps };
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
      return this.retry(job, isUnanswered(job) ? "ack_timeout" : "run_timeout");
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

const isUnanswered = ({ state, takenBy }: TrackedJob): boolean =>
  state === "DISPATCHED" && takenBy === undefined;
