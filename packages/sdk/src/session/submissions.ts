import {
  AckList,
  type ErrorMessage,
  fromErrorMessage,
  type SessionAck,
  TenureError,
} from "@tenure/protocol";
import type { Clock } from "../clock.ts";
import { type JobEvent, JobFailed, type JobHandle, type JobResult } from "./job-handle.ts";
import { JobSender } from "./job-sender.ts";
import { JobSweep } from "./job-sweep.ts";
import { OpenJobs } from "./open-jobs.ts";
import type { SessionConnection, SessionIncoming } from "./session-connection.ts";
import {
  cancelledBeforeSubmit,
  cancelOnAbort,
  createSubmission,
  noAnswer,
  refusedHandle,
  type Submission,
  type SubmitOptions,
  type TurnPlace,
  toFrame,
} from "./submission.ts";
import { Turns } from "./turns.ts";

export interface SubmissionLimits {
  /**
   * Jobs that are submitted and have not ended. More wait for room, up to ten times as many and each for `patienceMs`; then they
   * are refused with `QUEUE_FULL`.
   */
  outstandingMax: number;
  /** How long a job is retried without a server that confirms it. */
  patienceMs: number;
  /** After so long without news of a job it is submitted again: the server may have lost its memory. */
  checkEveryMs: number;
}

export const SUBMISSION_LIMITS: SubmissionLimits = {
  outstandingMax: 10_000,
  patienceMs: 60_000,
  checkEveryMs: 10_000,
};

/** So many times `outstandingMax` may wait for room. */
const QUEUED_FACTOR = 10;

/**
 * The jobs of a session. Each is sent as often as needed under one request id, for which the server keeps one job. It
 * ends here once, with the first result that arrives, a refusal, or no answer for `patienceMs`.
 */
export class Submissions {
  readonly turns: Turns;
  readonly #clock: Clock;
  readonly #limits: SubmissionLimits;
  readonly #connection: Pick<SessionConnection, "send" | "sendFrame" | "isGranted">;
  readonly #acks: AckList<SessionAck>;
  readonly #open: OpenJobs;
  readonly #sender: JobSender;
  readonly #sweep: JobSweep;
  #closed: TenureError | undefined;

  constructor({
    clock,
    random,
    limits,
    connection,
  }: {
    clock: Clock;
    random: () => number;
    limits: SubmissionLimits;
    connection: Pick<SessionConnection, "send" | "sendFrame" | "isGranted">;
  }) {
    this.#clock = clock;
    this.#limits = limits;
    this.#connection = connection;
    this.#open = new OpenJobs(limits.outstandingMax);
    this.turns = new Turns({
      nowMs: () => clock.monotonicMs(),
      sendFinalize: (reason, request_id) =>
        connection.send({ type: "turn_finalize", reason, request_id }),
      onUnblocked: () => this.#sender.sendWaiting(),
      onEnding: () => this.#sweep.startIfNeeded(),
    });
    this.#acks = new AckList({
      after: clock.after,
      send: (frame) => connection.sendFrame(frame),
    });
    this.#sender = new JobSender({
      ...{ clock, random, connection, acks: this.#acks },
      open: this.#open,
      turns: this.turns,
      onTooLarge: (submission, error) => this.#finish(submission, { error }),
    });
    this.#sweep = new JobSweep({
      ...{ clock, ...limits },
      open: this.#open,
      turns: this.turns,
      sender: this.#sender,
      onTimeout: (submission) => this.#timedOut(submission),
    });
  }

  // --- submitting ---

  submit(options: SubmitOptions, place?: TurnPlace): JobHandle {
    try {
      return this.#add(options, place);
    } catch (error) {
      const handle = refusedHandle(options.requestId ?? "", error as TenureError);
      if ((error as TenureError).code === "QUEUE_FULL") handle.catch(() => {});
      return handle;
    }
  }

  #add(options: SubmitOptions, place: TurnPlace | undefined): JobHandle {
    if (this.#closed) throw this.#closed;
    const frame = toFrame(options, place);
    const { requestId } = frame;
    const same = this.#open.get(requestId);
    if (same?.frame === frame.frame) return same.handle;
    if (same) throw new TenureError("REQUEST_ID_REUSED", { request_id: requestId });
    if (this.#open.queued >= QUEUED_FACTOR * this.#limits.outstandingMax) throw this.#queueFull();
    if (options.signal?.aborted) throw cancelledBeforeSubmit(requestId);
    const cancel = () => this.#cancel(submission);
    const nowMs = this.#clock.monotonicMs();
    const onReader = () => this.#watch(submission);
    const submission = createSubmission(frame, { place, nowMs, cancel, onReader });
    cancelOnAbort(options.signal, submission, cancel);
    this.#open.add(submission);
    if (place?.finalize) place.turn.endedBy = "job";
    countUnaccepted(submission, 1);
    this.#sender.admit();
    this.#sweep.startIfNeeded();
    return submission.handle;
  }

  #queueFull(): TenureError {
    return new TenureError("QUEUE_FULL", {
      queue: "queue of jobs of this session",
      limit: this.#limits.outstandingMax,
    });
  }

  /** The connection is ready. */
  ready(): void {
    // Those that wait are as good on the new connection, if it knows lists; else the results come again.
    if (!this.#connection.isGranted("ack_lists")) this.#acks.clear();
    this.#sender.resendAll();
    this.turns.resend("new");
    this.#sweep.startIfNeeded();
  }

  // --- cancelling ---

  #cancel(submission: Submission): void {
    if (submission.isCancelled || !this.#open.has(submission)) return;
    submission.isCancelled = true;
    if (submission.sentAtMs === undefined)
      this.#finish(submission, { error: cancelledBeforeSubmit(submission.requestId) });
    else this.#sender.sendCancel(submission);
  }

  #watch(submission: Submission): void {
    if (!submission.isWatched && this.#open.has(submission)) this.#sender.watch(submission);
  }

  // --- messages of the server ---

  receive(message: Exclude<SessionIncoming, { type: "error" }>): void {
    if (message.type === "job_accepted") this.#accepted(message);
    else if (message.type === "job_result") this.#ended(message);
    else if (message.type === "turn_finalized") this.turns.finalized(message);
    else this.#progressed(message);
  }

  #accepted(message: Extract<JobEvent, { type: "job_accepted" }>): void {
    const submission = this.#open.get(message.request_id);
    if (!submission) return;
    const { place } = submission;
    const isFirst = submission.jobId !== message.job_id;
    this.#open.setJobId(submission, message.job_id);
    submission.state = "accepted";
    submission.failures = 0;
    submission.lastError = undefined;
    this.#confirm(submission);
    if (place) place.turn.id = message.turn_id ?? place.turn.id;
    if (isFirst) {
      submission.checks = 0;
      submission.feed.push(message);
    }
    if (submission.isCancelled) this.#sender.sendCancel(submission);
    this.#advanceTurn(submission);
  }

  /** The server has the job: its turn has one job less to wait for, or has ended with it. */
  #advanceTurn(submission: Submission): void {
    if (!submission.isNew) return;
    countUnaccepted(submission, -1);
    submission.isNew = false;
    const { turn, finalize } = submission.place ?? {};
    if (turn && finalize) this.turns.end(turn, finalize);
    else if (turn) this.turns.advance(turn);
  }

  #progressed(event: Exclude<JobEvent, { type: "job_accepted" }>): void {
    const submission = this.#open.getByJob(event.job_id);
    if (!submission) return;
    this.#confirm(submission);
    submission.feed.push(event);
  }

  #confirm(submission: Submission): void {
    submission.confirmedAtMs = this.#clock.monotonicMs();
    submission.isExtended = false;
  }

  /** Acknowledges unknown jobs too: otherwise the server would resend their results until they expire. */
  #ended(message: Extract<SessionIncoming, { type: "job_result" }>): void {
    this.#acknowledge(message);
    const submission = this.#open.get(message.request_id);
    if (!submission) return;
    const { type: _, ...fields } = message;
    const result: JobResult = { ...fields, body: message.body };
    this.#advanceTurn(submission);
    this.#finish(
      submission,
      result.success ? { result } : { error: new JobFailed(result, result) },
    );
  }

  #acknowledge({ job_id, attempt_id, outcome }: SessionAck): void {
    if (this.#connection.isGranted("ack_lists")) this.#acks.add({ job_id, attempt_id, outcome });
    else this.#connection.send({ type: "job_result_ack", job_id });
  }

  /** Sends the acknowledgements that wait for a submit: the connection is about to be closed. */
  flushAcks(): void {
    this.#acks.flush();
  }

  /** A frame that is not a message. A result that cannot be parsed ends its job, because a resend would be the same. */
  unreadable(value: unknown, error: TenureError): void {
    const { type, request_id, job_id } = (value ?? {}) as Record<string, unknown>;
    const submission = type === "job_result" ? this.#open.get(String(request_id)) : undefined;
    if (!submission) return;
    if (submission.jobId !== undefined && submission.jobId === job_id)
      this.#connection.send({ type: "job_result_ack", job_id: submission.jobId });
    this.#advanceTurn(submission);
    this.#finish(submission, { error });
  }

  /** Handles an error of the server. False when it concerns no job and no turn of this session. */
  refused(message: ErrorMessage): boolean {
    const { request_id, job_id } = message;
    const error = fromErrorMessage(message);
    const submission =
      request_id === undefined ? this.#open.getByJob(job_id ?? "") : this.#open.get(request_id);
    if (!submission) return job_id === undefined && this.turns.refused(error, request_id);
    if (request_id === undefined) this.#cancelRefused(submission, error);
    else if (message.retryable) {
      submission.lastError = error;
      this.#sender.retryLater(submission, message.retry_after_ms ?? 0);
    } else this.#finish(submission, { error });
    return true;
  }

  #cancelRefused(submission: Submission, error: TenureError): void {
    if (submission.isCancelled && error.code === "NOT_FOUND")
      this.#finish(submission, { error: cancelledBeforeSubmit(submission.requestId) });
  }

  #timedOut(submission: Submission): void {
    const { state, handle, lastError } = submission;
    // A full queue must not end the process of a caller that ignores the handle.
    if (state === "queued") handle.catch(() => {});
    const reason = state === "waiting" ? "not connected" : "no answer";
    const error = state === "queued" ? this.#queueFull() : noAnswer(reason);
    this.#finish(submission, { error: lastError ?? error });
  }

  // --- the end ---

  #finish(submission: Submission, end: { result: JobResult } | { error: Error }): void {
    if (!this.#open.remove(submission)) return;
    submission.cancelPause();
    if ("result" in end) submission.resolve(end.result);
    else submission.reject(end.error);
    submission.feed.end();
    this.#leaveTurn(submission);
    this.#sender.admit();
  }

  /** The job ended without the server having it. If it was to end its turn, a `turn_finalize` does so. */
  #leaveTurn(submission: Submission): void {
    if (!submission.isNew || !submission.place) return;
    const { turn, finalize } = submission.place;
    countUnaccepted(submission, -1);
    submission.isNew = false;
    if (finalize) this.turns.close(turn, finalize);
    this.turns.advance(turn);
  }

  /** Rejects every open job; new ones may be submitted. */
  abandon(error: TenureError): void {
    this.#open.clearQueue();
    for (const submission of [...this.#open.all()]) this.#finish(submission, { error });
    this.turns.rejectWaiting(error);
    this.#sweep.stop();
  }

  /** Rejects every open job and every later one. */
  close(error: TenureError): void {
    this.#closed = error;
    this.turns.abandon();
    this.abandon(error);
  }
}

/** The job that ends the turn does not count: it may go when no other is left. */
function countUnaccepted({ place, isNew }: Submission, change: 1 | -1): void {
  if (place && isNew && !place.finalize) place.turn.unaccepted += change;
}
