import {
  type ErrorMessage,
  type FinalizeReason,
  fromErrorMessage,
  TenureError,
} from "@tenure/protocol";
import type { Cancel, Clock } from "../clock.ts";
import type { SendOutcome } from "../connection/link.ts";
import { unsentError } from "../connection/unsent.ts";
import { type JobEvent, JobFailed, type JobHandle, type JobResult } from "./job-handle.ts";
import type { SessionIncoming, SessionOutgoing } from "./session-connection.ts";
import {
  cancelledUnheard,
  createSubmission,
  noAnswer,
  refusedHandle,
  type Submission,
  type SubmitOptions,
  type TurnPlace,
  toFrame,
  unanswered,
  watchSignal,
} from "./submission.ts";
import { createTurns, type Turns } from "./turns.ts";

export interface SubmissionLimits {
  /**
   * Jobs that are submitted and have not ended. More wait for room, up to ten times as many and each for `patienceMs`; then they
   * are refused with `QUEUE_FULL`.
   */
  outstandingMax: number;
  /** How long a job is tried without any server saying that it has it. */
  patienceMs: number;
  /** After so long without a word about a job it is submitted again: the server may have lost its memory. */
  checkEveryMs: number;
}

export const SUBMISSION_LIMITS: SubmissionLimits = {
  outstandingMax: 10_000,
  patienceMs: 60_000,
  checkEveryMs: 10_000,
};

export interface Submissions {
  readonly turns: Turns;
  submit(options: SubmitOptions, place?: TurnPlace): JobHandle;
  /** A connection is there: everything unanswered is said again, in the order it was asked for. */
  ready(): void;
  heard(message: Exclude<SessionIncoming, { type: "error" }>): void;
  /** A frame that is no message. */
  unreadable(value: unknown, error: TenureError): void;
  /** An error of the server. False when it is about nothing here. */
  refused(message: ErrorMessage): boolean;
  /** Nobody will answer what was asked so far. */
  abandon(error: TenureError): void;
  /** Nor what would be asked from now on. */
  close(error: TenureError): void;
}

const SWEEP_MS = 1_000;
const CHECKS_DOUBLED_MAX = 2;
const PAUSE_MS = { base: 50, cap: 5_000 } as const;
/** Until the network has taken some of what waits. */
const CROWDED_MS = 20;
/** So many times `outstandingMax` may wait for room. */
const WAITING_FACTOR = 10;
const CANCEL_AGAIN_MS = 2_000;
/** A sweep that is late by so much: the process was stopped, or its page is in the background. */
const STOPPED_MS = 5_000;

/**
 * The jobs of a session. Each is said as often as it takes under one request id, which the server answers with one
 * and the same job; it ends here once, with the first result that comes.
 */
export function createSubmissions({
  clock,
  random,
  limits,
  sendFrame,
  send,
}: {
  clock: Clock;
  random: () => number;
  limits: SubmissionLimits;
  sendFrame: (frame: string) => SendOutcome;
  send: (message: SessionOutgoing) => SendOutcome;
}): Submissions {
  const byRequest = new Map<string, Submission>();
  const byJob = new Map<string, Submission>();
  const turns = createTurns({
    nowMs: () => clock.monotonicMs(),
    say: sayEnd,
    moved: sayWaiting,
    closing: keepSweeping,
  });
  /** Submitted and not ended. */
  let admitted = 0;
  /** Those that wait for room, from `roomHead` on. */
  let roomQueue: Submission[] = [];
  let roomHead = 0;
  let isAdmitting = false;
  let isCrowded = false;
  let cancelSweep: Cancel | undefined;
  let sweptMs = 0;
  let closed: TenureError | undefined;

  // --- asking ---

  function submit(options: SubmitOptions, place?: TurnPlace): JobHandle {
    try {
      return open(options, place);
    } catch (error) {
      const handle = refusedHandle(options.requestId ?? "", error as TenureError);
      if ((error as TenureError).code === "QUEUE_FULL") handle.catch(() => {});
      return handle;
    }
  }

  function open(options: SubmitOptions, place: TurnPlace | undefined): JobHandle {
    if (closed) throw closed;
    const frame = toFrame(options, place);
    const { requestId } = frame;
    const same = byRequest.get(requestId);
    if (same?.frame === frame.frame) return same.handle;
    if (same) throw new TenureError("REQUEST_ID_REUSED", { request_id: requestId });
    if (byRequest.size - admitted >= WAITING_FACTOR * limits.outstandingMax) throw queueFull();
    if (options.signal?.aborted) throw cancelledUnheard(requestId);
    const cancel = () => cancelJob(submission);
    const nowMs = clock.monotonicMs();
    const submission = createSubmission(frame, { place, nowMs, cancel });
    watchSignal(options.signal, submission, cancel);
    byRequest.set(requestId, submission);
    if (place?.finalize) place.turn.closing = "job";
    count(submission, 1);
    roomQueue.push(submission);
    admit();
    keepSweeping();
    return submission.handle;
  }

  const queueFull = (): TenureError =>
    new TenureError("QUEUE_FULL", {
      queue: "jobs of this session that have not ended",
      limit: limits.outstandingMax,
    });

  /** Sends what waits for room, in the order it was submitted, while there is some. */
  function admit(): void {
    if (isAdmitting) return;
    isAdmitting = true;
    while (admitted < limits.outstandingMax && roomHead < roomQueue.length) {
      const submission = roomQueue[roomHead++] as Submission;
      if (roomHead > 1_000 || roomHead === roomQueue.length) {
        roomQueue = roomQueue.slice(roomHead);
        roomHead = 0;
      }
      // One that was cancelled or given up meanwhile has left.
      if (byRequest.get(submission.requestId) !== submission) continue;
      admitted += 1;
      submission.state = "waiting";
      submission.heardMs = clock.monotonicMs();
      say(submission);
    }
    isAdmitting = false;
  }

  /** Stays `waiting` when it may not go yet; whatever stops it calls again. */
  function say(submission: Submission): void {
    const { place } = submission;
    if (isCrowded || submission.state === "held" || submission.state === "queued") return;
    if (place && submission.isNew && !turns.mayGo(place.turn, place.finalize !== undefined)) return;
    const { frame, saidMs } = submission;
    const outcome = sendFrame(saidMs === undefined ? frame : again(frame));
    submission.state = outcome === "sent" ? "sent" : "waiting";
    if (outcome === "sent") {
      submission.saidMs = clock.monotonicMs();
      if (place) place.turn.touched = true;
    } else if (outcome === "queue_full") waitForRoom();
    else if (outcome === "too_large") settle(submission, { error: unsentError(outcome) });
  }

  function sayWaiting(): void {
    for (const submission of byRequest.values()) {
      if (isCrowded) return;
      if (submission.state === "waiting") say(submission);
    }
  }

  function waitForRoom(): void {
    isCrowded = true;
    clock.after(CROWDED_MS, () => {
      isCrowded = false;
      sayWaiting();
    });
  }

  function sayEnd(reason: FinalizeReason, request_id: string): SendOutcome {
    return send({ type: "turn_finalize", reason, request_id });
  }

  // --- cancelling ---

  function cancelJob(submission: Submission): void {
    if (submission.isCancelled || byRequest.get(submission.requestId) !== submission) return;
    submission.isCancelled = true;
    if (submission.saidMs === undefined)
      settle(submission, { error: cancelledUnheard(submission.requestId) });
    else sayCancel(submission);
  }

  /** Without a job id there is nothing to name yet: then it is said when the server has named it. */
  function sayCancel(submission: Submission): void {
    if (submission.jobId === undefined) return;
    submission.cancelSaidMs = clock.monotonicMs();
    send({ type: "job_cancel", job_id: submission.jobId });
  }

  // --- being answered ---

  function heard(message: Exclude<SessionIncoming, { type: "error" }>): void {
    if (message.type === "job_accepted") accepted(message);
    else if (message.type === "job_result") ended(message);
    else if (message.type === "turn_finalized") turns.finalized(message);
    else moved(message);
  }

  function accepted(message: Extract<JobEvent, { type: "job_accepted" }>): void {
    const submission = byRequest.get(message.request_id);
    if (!submission) return;
    const { place } = submission;
    const isNews = submission.jobId !== message.job_id;
    if (submission.jobId !== undefined) byJob.delete(submission.jobId);
    submission.jobId = message.job_id;
    byJob.set(message.job_id, submission);
    submission.state = "accepted";
    submission.failures = 0;
    submission.lastError = undefined;
    submission.heardMs = clock.monotonicMs();
    submission.isForgiven = false;
    if (place) place.turn.id = message.turn_id ?? place.turn.id;
    if (isNews) {
      submission.checks = 0;
      submission.feed.push(message);
    }
    if (submission.isCancelled) sayCancel(submission);
    arrive(submission);
  }

  /** The server has it: so its turn has one job less to wait for, or is over. */
  function arrive(submission: Submission): void {
    if (!submission.isNew) return;
    count(submission, -1);
    submission.isNew = false;
    const { turn, finalize } = submission.place ?? {};
    if (turn && finalize) turns.end(turn, finalize);
    else if (turn) turns.step(turn);
  }

  function moved(event: Exclude<JobEvent, { type: "job_accepted" }>): void {
    const submission = byJob.get(event.job_id);
    if (!submission) return;
    submission.heardMs = clock.monotonicMs();
    submission.isForgiven = false;
    submission.feed.push(event);
  }

  /** Acknowledged also when nobody here waits for it: the server would offer it for ever. */
  function ended(message: Extract<SessionIncoming, { type: "job_result" }>): void {
    send({ type: "job_result_ack", job_id: message.job_id });
    const submission = byRequest.get(message.request_id);
    if (!submission) return;
    const { type: _, ...fields } = message;
    const result: JobResult = { ...fields, body: message.body };
    arrive(submission);
    settle(submission, result.success ? { result } : { error: new JobFailed(result, result) });
  }

  /** Sent again it would be the same, so the job ends here with what is wrong about its result. */
  function unreadable(value: unknown, error: TenureError): void {
    const { type, request_id, job_id } = (value ?? {}) as Record<string, unknown>;
    const submission = type === "job_result" ? byRequest.get(String(request_id)) : undefined;
    if (!submission) return;
    if (submission.jobId !== undefined && submission.jobId === job_id)
      send({ type: "job_result_ack", job_id: submission.jobId });
    arrive(submission);
    settle(submission, { error });
  }

  function refused(message: ErrorMessage): boolean {
    const error = fromErrorMessage(message);
    const submission =
      message.request_id === undefined
        ? byJob.get(message.job_id ?? "")
        : byRequest.get(message.request_id);
    if (!submission)
      return message.job_id === undefined && turns.refused(error, message.request_id);
    if (message.request_id === undefined) cancelFailed(submission, error);
    else if (message.retryable) hold(submission, error, message.retry_after_ms ?? 0);
    else settle(submission, { error });
    return true;
  }

  function cancelFailed(submission: Submission, error: TenureError): void {
    if (submission.isCancelled && error.code === "NOT_FOUND")
      settle(submission, { error: cancelledUnheard(submission.requestId) });
  }

  /** Full jitter over a growing pause, and never before the server wants to be asked again. */
  function hold(submission: Submission, error: TenureError, leastMs: number): void {
    submission.lastError = error;
    submission.state = "held";
    submission.endPause();
    const growingMs = Math.min(PAUSE_MS.cap, PAUSE_MS.base * 2 ** submission.failures++);
    submission.endPause = clock.after(leastMs + growingMs * (0.5 + random() / 2), () => {
      submission.state = "waiting";
      say(submission);
    });
  }

  // --- waiting ---

  function keepSweeping(): void {
    if (cancelSweep || !isSweepNeeded()) return;
    sweptMs = clock.monotonicMs();
    cancelSweep = clock.after(SWEEP_MS, sweep);
  }

  const isSweepNeeded = (): boolean => byRequest.size > 0 || turns.isEnding();

  function sweep(): void {
    const nowMs = clock.monotonicMs();
    const lateMs = nowMs - sweptMs - SWEEP_MS;
    if (lateMs >= STOPPED_MS) forgive(lateMs);
    for (const submission of byRequest.values()) {
      if (nowMs - submission.heardMs >= limits.patienceMs) {
        // A caller that does not look at the handle must not lose its process to a full queue.
        if (submission.state === "queued") submission.handle.catch(() => {});
        const error = submission.state === "queued" ? queueFull() : unanswered(submission);
        settle(submission, { error: submission.lastError ?? error });
      } else check(submission, nowMs);
    }
    turns.sayAgain("same");
    turns.giveUpWaiting(noAnswer("no answer to turn_finalize"), limits.patienceMs);
    cancelSweep = undefined;
    keepSweeping();
  }

  /**
   * The process was stopped (a frozen container, a closed laptop): an answer may lie unread. That time does not count,
   * and the server is asked again. Once only, until it answers: in the background of a browser every sweep is late.
   */
  function forgive(stoppedMs: number): void {
    turns.forgive(stoppedMs);
    for (const submission of byRequest.values()) {
      if (submission.isForgiven) continue;
      submission.isForgiven = true;
      submission.heardMs = Math.min(submission.heardMs + stoppedMs, clock.monotonicMs());
      if (submission.state === "sent" || submission.state === "accepted") say(submission);
    }
  }

  function check(submission: Submission, nowMs: number): void {
    const { state, saidMs = nowMs, heardMs, cancelSaidMs } = submission;
    if (cancelSaidMs !== undefined && nowMs - cancelSaidMs >= CANCEL_AGAIN_MS)
      sayCancel(submission);
    if (state !== "sent" && state !== "accepted") return;
    const patientMs = limits.checkEveryMs * 2 ** Math.min(submission.checks, CHECKS_DOUBLED_MAX);
    if (nowMs - Math.max(saidMs, heardMs) < patientMs) return;
    submission.checks += 1;
    say(submission);
  }

  // --- the end ---

  function settle(submission: Submission, end: { result: JobResult } | { error: Error }): void {
    byRequest.delete(submission.requestId);
    if (submission.state !== "queued") admitted -= 1;
    if (submission.jobId !== undefined) byJob.delete(submission.jobId);
    submission.endPause();
    if ("result" in end) submission.resolve(end.result);
    else submission.reject(end.error);
    submission.feed.end();
    withdraw(submission);
    admit();
  }

  /** It ended without the server having it. If it was to end its turn, somebody else must. */
  function withdraw(submission: Submission): void {
    if (!submission.isNew || !submission.place) return;
    const { turn, finalize } = submission.place;
    count(submission, -1);
    submission.isNew = false;
    if (finalize) turns.close(turn, finalize);
    turns.step(turn);
  }

  function abandon(error: TenureError): void {
    roomQueue = [];
    roomHead = 0;
    for (const submission of [...byRequest.values()]) settle(submission, { error });
    turns.giveUpWaiting(error);
    cancelSweep?.();
    cancelSweep = undefined;
  }

  function count({ place, isNew }: Submission, change: 1 | -1): void {
    if (place && isNew && !place.finalize) place.turn.unaccepted += change;
  }

  return {
    turns,
    submit,
    ready() {
      for (const submission of byRequest.values())
        if (submission.state === "sent" || submission.state === "accepted")
          submission.state = "waiting";
      sayWaiting();
      turns.sayAgain("new");
      keepSweeping();
    },
    heard,
    unreadable,
    refused,
    abandon,
    close(error) {
      closed = error;
      turns.abandon();
      abandon(error);
    },
  };
}

/** For the server there is less to do for what it may have already; after a reconnect that is everything that is open. */
const again = (frame: string): string => `${frame.slice(0, -1)},"again":true}`;
