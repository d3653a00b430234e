import type { AckList, SessionAck, TenureError } from "@tenure/protocol";
import type { Clock } from "../clock.ts";
import { unsentError } from "../connection/link.ts";
import type { OpenJobs } from "./open-jobs.ts";
import type { SessionConnection } from "./session-connection.ts";
import { type Submission, type SubmitFlags, withFields } from "./submission.ts";
import type { Turns } from "./turns.ts";

const PAUSE_MS = { base: 50, cap: 5_000 } as const;
/** How long to wait after the send buffer was full. */
const SEND_BUFFER_PAUSE_MS = 20;

interface JobSenderOptions {
  clock: Clock;
  /** At least 0, below 1. */
  random: () => number;
  connection: Pick<SessionConnection, "send" | "sendFrame" | "isGranted">;
  /** Acknowledgements of results, which go along with submits. */
  acks: AckList<SessionAck>;
  open: OpenJobs;
  turns: Turns;
  /** The frame of the job is larger than the protocol allows. */
  onTooLarge: (submission: Submission, error: TenureError) => void;
}

/**
 * Sends the jobs of a session while the limit of outstanding jobs, their turns and the send buffer allow it. A job that
 * may not go stays `waiting`; the event that unblocks it calls `sendWaiting`.
 */
export class JobSender {
  readonly #options: JobSenderOptions;
  /** `admit` is running: a job that ends meanwhile must not start a second run. */
  #isAdmitting = false;
  /** The send buffer was full a moment ago: nothing is sent until the pause is over. */
  #isPaused = false;

  constructor(options: JobSenderOptions) {
    this.#options = options;
  }

  /** Sends queued jobs while there is room. */
  admit(): void {
    if (this.#isAdmitting) return;
    const { clock, open } = this.#options;
    this.#isAdmitting = true;
    for (let next = open.admitNext(); next; next = open.admitNext()) {
      next.confirmedAtMs = clock.monotonicMs();
      this.send(next);
    }
    this.#isAdmitting = false;
  }

  send(submission: Submission): void {
    const { clock, connection, acks, turns, onTooLarge } = this.#options;
    const { place, frame, state, isNew } = submission;
    if (this.#isPaused || state === "paused" || state === "queued") return;
    if (place && isNew && !turns.maySend(place.turn, place.finalize !== undefined)) return;
    const flagged = withFields(frame, this.#flagsOf(submission));
    const whole = acks.onto(flagged);
    const outcome = connection.sendFrame(whole);
    if (outcome === "sent") acks.tookAlong(whole, flagged);
    submission.state = outcome === "sent" ? "sent" : "waiting";
    if (outcome === "sent") {
      submission.sentAtMs = clock.monotonicMs();
      if (place) place.turn.isSent = true;
    } else if (outcome === "queue_full") this.#waitForBuffer();
    else if (outcome === "too_large") onTooLarge(submission, unsentError(outcome));
  }

  #flagsOf({ sentAtMs, isWatched }: Submission): SubmitFlags {
    const wantsUpdates = isWatched && this.#options.connection.isGranted("updates_on_request");
    return {
      ...(sentAtMs !== undefined && { again: true }),
      ...(wantsUpdates && { updates: true }),
    };
  }

  /** The job has got its first reader. Before it is sent, the submit itself asks for its states. */
  watch(submission: Submission): void {
    const { connection } = this.#options;
    const { requestId, jobId, state } = submission;
    submission.isWatched = true;
    if (state !== "sent" && state !== "accepted") return;
    if (!connection.isGranted("updates_on_request")) return;
    const job = jobId !== undefined && { job_id: jobId };
    connection.send({ type: "job_watch", request_id: requestId, ...job });
  }

  sendWaiting(): void {
    for (const submission of this.#options.open.all()) {
      if (this.#isPaused) return;
      if (submission.state === "waiting") this.send(submission);
    }
  }

  /** Sends every job without an answer again, in the order of submission: the connection is new. */
  resendAll(): void {
    for (const submission of this.#options.open.all())
      if (submission.state === "sent" || submission.state === "accepted")
        submission.state = "waiting";
    this.sendWaiting();
  }

  /** Does nothing before the job has an id; it is called again when the server has accepted the job. */
  sendCancel(submission: Submission): void {
    const { clock, connection } = this.#options;
    if (submission.jobId === undefined) return;
    submission.cancelSentAtMs = clock.monotonicMs();
    connection.send({ type: "job_cancel", job_id: submission.jobId });
  }

  /** Sends the job again after a growing, jittered pause, and never before `leastMs`. */
  retryLater(submission: Submission, leastMs: number): void {
    const { clock, random } = this.#options;
    submission.state = "paused";
    submission.cancelPause();
    const growingMs = Math.min(PAUSE_MS.cap, PAUSE_MS.base * 2 ** submission.failures++);
    submission.cancelPause = clock.after(leastMs + growingMs * (0.5 + random() / 2), () => {
      submission.state = "waiting";
      this.send(submission);
    });
  }

  #waitForBuffer(): void {
    this.#isPaused = true;
    this.#options.clock.after(SEND_BUFFER_PAUSE_MS, () => {
      this.#isPaused = false;
      this.sendWaiting();
    });
  }
}
