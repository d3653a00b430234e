import { cutText, type JobError, type JobOutcome, TenureError } from "@tenure/protocol";
import { failpoint } from "#failpoint";
import { type Ending, type JobEnd, resultText } from "../api/frames.ts";
import { isStoreDown, type JobsContext } from "../context.ts";
import { type LiveJob, NODE_LOST_WORDS, needOf } from "../memory/tracked-jobs.ts";
import type { RetryReason } from "../meter.ts";
import { keepBinding } from "../store/binding-store.ts";
import type { EndedJob } from "../store/ended-store.ts";
import { readJob } from "../store/job-store.ts";
import { type Advanced, advance } from "../store/transition-store.ts";
import type { Turns } from "../turns/turns.ts";
import { exclusionWords, type Placement } from "./placement.ts";
import type { Results } from "./result-delivery.ts";
import type { Retention } from "./retention.ts";
import type { Slots } from "./slots.ts";

/** How attempts and jobs come to their end. */
export interface Endings {
  /** This attempt came to nothing: another one elsewhere, or the end of the job. */
  retry(job: LiveJob, reason: RetryReason, words?: string): Promise<void>;
  /** The steps that end an attempt after a failure, for whoever writes them together with others. */
  afterFailure(job: LiveJob, reason: RetryReason, words: string): Promise<FailureSteps>;
  /** Another attempt was written: the job goes on from there. */
  beginAnew(job: LiveJob, advanced: Advanced, reason: RetryReason): void;
  /** FINISHED was written by us: everything that follows from it. */
  finished(job: LiveJob, end: JobEnd): void;
  /** Finishes what an instance left that is gone: slot, RELEASED, delivery. Rejects when the store is down. */
  conclude(ending: ConcludedJob): Promise<void>;
  cancel(job: LiveJob): Promise<Advanced | { outcome: "absent" }>;
  /** The alarm that was set for a job in hand. */
  onDeadline(jobId: string): void;
  /** The alarm of a job whose next attempt waits out its back-off. */
  onBackOff(jobId: string): void;
}

/** Before the name of a job in the alarms of an instance: the end of its back-off. */
export const BACK_OFF_ALARM = "back-off ";

export interface ConcludedJob extends Ending {
  tenant: string;
  sessionId: string | undefined;
  originInstanceId: string;
  /** Instances where somebody else waits for it. */
  listeners: readonly string[];
  released: boolean;
  /** Another instance ended it, and has begun with this. */
  rescued?: boolean;
}

export type FailureSteps =
  | { event: "reassign"; reason: string; counts: boolean; avoid: boolean; lost: boolean }
  | { event: "give_up"; outcome: "attempts_exhausted" | "timed_out"; error: JobError };

/** Attempts that end for the server's or the operator's reasons are not held against the job. */
const UNCOUNTED: ReadonlySet<RetryReason> = new Set([
  "node_draining",
  "inbox_full",
  "instance_lost",
]);

/** A node that was lost before it accepted a job was not lost to that job. */
const wasNeverTaken = ({ state }: LiveJob, reason: RetryReason): boolean =>
  reason === "node_lost" && state === "DISPATCHED";

/** Also uncounted attempts end some day: nobody may send a job around for ever. */
export const attemptsInAllMax = ({ attemptsMax }: { attemptsMax: number }): number =>
  attemptsMax + 10;

const WORDS: Record<RetryReason, string> = {
  ack_timeout: "the node did not accept it in time",
  run_timeout: "it did not end in time",
  node_lost: NODE_LOST_WORDS,
  node_draining: "its node takes no more jobs",
  failed: "it failed",
  model_not_available: "its node cannot serve it now",
  inbox_full: "the instance of its node is overloaded",
  instance_lost: "the instance that had it in hand was lost",
};

const RETRY_PAUSE_MS = 500;
const BACK_OFF_MS = 100;
const BACK_OFF_MS_MAX = 2_000;

/**
 * How long a job waits before its next attempt. The first attempt that did not count is repeated at once, the others
 * later each time: without a pause a job on nodes that cannot be reached used up all its attempts in 80 ms.
 */
function backOffMs({ attemptId, countedAttempts }: LiveJob): number {
  const uncounted = attemptId - 1 - countedAttempts;
  if (uncounted <= 1) return 0;
  return Math.min(BACK_OFF_MS * 2 ** (uncounted - 2), BACK_OFF_MS_MAX);
}

export function createEndings(
  context: JobsContext,
  parts: {
    slots: Slots;
    turns: Pick<Turns, "placedOrEnded">;
    results: Results;
    retention: Pick<Retention, "bytesOf" | "ended">;
    placement: () => Placement;
    /** Whether a node's report about it is under way to the store. */
    isReported: (jobId: string) => boolean;
    cancelOnNode: (
      attempt: { jobId: string; attemptId: number; nodeId: string },
      reason: string,
    ) => void;
  },
): Endings {
  const { hot, instanceId, clock, log, book, waiting, deadlines, meter, settings } = context;
  const { slots, results } = parts;

  async function afterFailure(
    job: LiveJob,
    reason: RetryReason,
    words: string,
  ): Promise<FailureSteps> {
    const counts = !UNCOUNTED.has(reason) && !wasNeverTaken(job, reason);
    if (counts && job.countedAttempts > 0 && job.countedAttempts + 1 >= job.attemptsMax)
      await recount(job);
    const attempts = job.countedAttempts + (counts ? 1 : 0);
    const isLastInAll = job.attemptId >= attemptsInAllMax(job);
    if (attempts < job.attemptsMax && !isLastInAll)
      return {
        event: "reassign",
        reason: sentence(reason, words),
        ...{ counts, avoid: true, lost: reason === "node_lost" },
      };
    if (reason === "run_timeout")
      return { event: "give_up", outcome: "timed_out", error: errorOf(timeout(job)) };
    const exhausted = new TenureError("ATTEMPTS_EXHAUSTED", {
      job_id: job.jobId,
      attempts: isLastInAll ? job.attemptId : attempts,
    });
    const error = errorOf(exhausted, sentence(reason, words));
    return { event: "give_up", outcome: "attempts_exhausted", error };
  }

  /** Another instance may have taken attempts off the count. Before the count ends a job, the record is read. */
  async function recount(job: LiveJob): Promise<void> {
    const record = await readJob(hot, job.jobId);
    if (record?.attemptId === job.attemptId) job.countedAttempts = record.countedAttempts;
  }

  async function retry(job: LiveJob, reason: RetryReason, words = ""): Promise<void> {
    const step = await afterFailure(job, reason, words);
    const { jobId, attemptId, nodeId } = job;
    if (step.event === "give_up") return giveUp(job, step, sentence(reason, words));
    const answered = await advance(hot, { jobId, attemptId, nodeId, instanceId, steps: [step] });
    const answer = answered.outcome === "answered" ? answered.answers[0] : "absent";
    if (answered.outcome === "absent" || (answer !== "applied" && answer !== "exhausted"))
      return letGo(job);
    job.countedAttempts = answered.countedAttempts;
    // More attempts were counted than this instance knew of.
    if (answer === "exhausted") return retry(job, reason, words);
    if (nodeId) parts.cancelOnNode({ jobId, attemptId, nodeId }, sentence(reason, words));
    beginAnew(job, answered, reason);
  }

  function beginAnew(job: LiveJob, advanced: Advanced, reason: RetryReason): void {
    const { jobId, attemptId, nodeId } = job;
    meter.retried(reason);
    context.tracing.attemptEnded(job, reason);
    if (nodeId) slots.free(nodeId, { jobId, attemptId }).catch(() => {});
    if (nodeId) job.former.add(nodeId);
    job.isSuspect ||= reason === "node_lost" && !wasNeverTaken(job, reason);
    job.state = "CREATED";
    job.attemptId = advanced.attemptId;
    job.countedAttempts = advanced.countedAttempts;
    job.nodeId = undefined;
    job.lastReason = reason;
    job.need = needOf(job.service, job);
    job.affinity = "no_turn";
    job.attemptSinceMs = clock.monotonicMs();
    deadlines.clear(jobId);
    takeInHand(job);
    const pauseMs = backOffMs(job);
    if (pauseMs > 0) deadlines.set(`${BACK_OFF_ALARM}${jobId}`, pauseMs);
    else parts.placement().place(job);
  }

  function onBackOff(jobId: string): void {
    const job = book.get(jobId);
    if (job?.state === "CREATED" && !waiting.has(jobId)) parts.placement().place(job);
  }

  /** Also one that was in nobody's hands here: who wrote its next attempt brings it to a node. */
  function takeInHand(job: LiveJob): void {
    if (book.get(job.jobId) === job) return;
    waiting.remove(job.jobId);
    book.add(job);
  }

  async function giveUp(
    job: LiveJob,
    end: { outcome: Exclude<JobOutcome, "succeeded">; error: JobError },
    reason: string,
  ): Promise<void> {
    const { jobId, attemptId, nodeId } = job;
    const result = resultText({ error: end.error });
    const step = { event: "give_up", outcome: end.outcome, reason } as const;
    const answered = await advance(hot, { jobId, attemptId, instanceId, steps: [step], result });
    if (answered.outcome === "absent" || answered.answers[0] !== "applied") return letGo(job);
    const former = nodeId ?? answered.formerNodeId;
    if (former) parts.cancelOnNode({ jobId, attemptId, nodeId: former }, reason);
    const { listeners } = answered;
    finished(job, { outcome: end.outcome, attemptId, nodeId: former, result, listeners });
  }

  /** Somebody else has it by now, or it is over. */
  function letGo(job: LiveJob): void {
    if (!book.drop(job)) return;
    deadlines.clear(job.jobId);
    waiting.remove(job.jobId);
  }

  function finished(job: LiveJob, end: JobEnd): void {
    letGo(job);
    meter.finished(end.outcome, end.attemptId);
    context.tracing.jobEnded(job, end);
    parts.turns.placedOrEnded(job);
    const { jobId, tenant, requestId, turnId, sessionId, originInstanceId } = job;
    const names = { jobId, tenant, requestId, turnId, sessionId, originInstanceId };
    conclude({ ...names, ...end, released: false }).catch((error) => {
      if (!isStoreDown(error))
        log.error({ event: "job.not-concluded", jobId, error }, "the due index will find it");
    });
  }

  async function conclude(ending: ConcludedJob): Promise<void> {
    await failpoint("result.after-finished");
    // The session need not wait until the slot is free. Returned, not awaited: until the session acknowledges, only
    // the job id and a size may be held here, not the result.
    const ended = endedJob(ending);
    return leaveAfter(ended, Promise.all([results.deliver(ending), release(ending)]));
  }

  function endedJob({ jobId, result, isEvicted }: ConcludedJob): EndedJob {
    return { jobId, bytes: isEvicted ? 0 : parts.retention.bytesOf(result) };
  }

  async function leaveAfter(
    ended: EndedJob,
    work: Promise<["out" | "stay", unknown]>,
  ): Promise<void> {
    const [delivered] = await work;
    await failpoint("result.after-delivered");
    await parts.retention.ended(ended, { leaves: delivered === "out" });
  }

  async function release(ending: ConcludedJob): Promise<void> {
    const { jobId, attemptId, nodeId, released } = ending;
    if (released) return;
    const keepMs = settings.retentionMs;
    // Before RELEASED: an instance that stops in between leaves a job that is released, and bound, once more.
    await Promise.all([
      nodeId && slots.free(nodeId, { jobId, attemptId }),
      keepBinding(hot, ending, keepMs),
    ]);
    await failpoint("result.after-freed");
    const steps = [{ event: "released", keepMs }] as const;
    await advance(hot, { jobId, attemptId, instanceId, steps });
    await failpoint("result.after-released");
  }

  async function cancel(job: LiveJob): Promise<Advanced | { outcome: "absent" }> {
    const { jobId, attemptId } = job;
    const error = errorOf(new TenureError("JOB_CANCELLED", { job_id: jobId }));
    const result = resultText({ error });
    const step = { event: "give_up", outcome: "cancelled", reason: "cancelled" } as const;
    const answered = await advance(hot, { jobId, attemptId, instanceId, steps: [step], result });
    if (answered.outcome === "answered" && answered.answers[0] === "applied") {
      const nodeId = answered.formerNodeId;
      if (nodeId) parts.cancelOnNode({ jobId, attemptId, nodeId }, "cancelled");
      const { listeners } = answered;
      finished(job, { outcome: "cancelled", attemptId, nodeId, result, listeners });
    }
    return answered;
  }

  function onDeadline(jobId: string): void {
    const job = book.get(jobId);
    if (!job) return;
    if (parts.isReported(jobId)) {
      deadlines.set(jobId, RETRY_PAUSE_MS);
      return;
    }
    tooLate(job).catch((error) => {
      if (book.get(jobId) === job) deadlines.set(jobId, RETRY_PAUSE_MS);
      if (!isStoreDown(error))
        log.error({ event: "job.deadline-missed", jobId, error }, "will be tried again");
    });
  }

  async function tooLate(job: LiveJob): Promise<void> {
    if (job.state === "CREATED") {
      const troubleMs = context.trouble.atMs();
      if (troubleMs > job.attemptSinceMs) {
        // While the store was away nobody could be chosen. It has its time after that.
        job.attemptSinceMs = troubleMs;
        const waitedMs = clock.monotonicMs() - troubleMs;
        return deadlines.set(job.jobId, job.pendingTimeoutMs - waitedMs);
      }
      const excluded = exclusionWords(context, job);
      const none = errorOf(new TenureError("NO_AVAILABLE_NODE", { pool: job.pool }), excluded);
      return giveUp(job, { outcome: "no_node", error: none }, `no node in time: ${excluded}`);
    }
    return retry(job, job.state === "DISPATCHED" ? "ack_timeout" : "run_timeout");
  }

  return { retry, afterFailure, beginAnew, finished, conclude, cancel, onDeadline, onBackOff };
}

const timeout = ({ jobId }: LiveJob) => new TenureError("JOB_TIMEOUT", { job_id: jobId });

const sentence = (reason: RetryReason, words: string): string =>
  words === "" ? WORDS[reason] : `${WORDS[reason]}: ${words}`;

const errorOf = (error: TenureError, words = ""): JobError => ({
  code: error.code,
  message: words === "" ? error.message : cutText(`${error.message} (${words})`, 4_096),
});
