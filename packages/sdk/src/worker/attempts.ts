import {
  type ErrorMessage,
  fromErrorMessage,
  type JobAssign,
  type JobAttempt,
  type NodeJobError,
  TenureError,
} from "@tenure/protocol";
import type { Clock } from "../clock.ts";
import type { SendOutcome } from "../connection/link.ts";
import {
  type Attempt,
  abort,
  createAttempt,
  impliedBy,
  listed,
  type Run,
  type RunContext,
  type WorkerJob,
} from "./attempt.ts";
import { DRAINING, failureOf, NO_SLOT } from "./job-failure.ts";
import type { NodeIncoming, NodeOutgoing } from "./node-connection.ts";
import { type JobEnd, ResultOutbox } from "./result-outbox.ts";
import { SilentStarts } from "./silent-starts.ts";

interface AttemptsOptions {
  clock: Clock;
  /** Jobs that run at once. */
  capacity: number;
  /** Results without an acknowledgement. Above it the oldest is dropped, and its job runs again on another node. */
  outboxMax: number;
  /** How long a job waits for a cancelled run that does not stop, before it goes to another node. */
  slotWithinMs: number;
  run: Run<never>;
  send: (message: NodeOutgoing) => SendOutcome;
  sendFrame: (frame: string) => SendOutcome;
  onProblem: (error: TenureError) => void;
  /** Stopped runs do not end, or have ended at last: the server should learn of it before the next heartbeat. */
  onStuck: () => void;
  /** Whether the server grants `deferred_start` on the present connection. */
  isDeferring: () => boolean;
  /** A run is about to begin, or has ended. */
  onRun?: (() => void) | undefined;
}

/** The server's own time limit comes first; this one is for when the server cannot reach the worker. */
const TIMEOUT_GRACE_MS = 1_000;
/** A stopped run that has not ended after so long is reported to the server, because it still uses its slot. */
const STUCK_MS = 1_000;

/**
 * The attempts of a worker.
 *
 * - A job is owned at most once, as its newest attempt. An older one is stopped, and its result is discarded.
 * - An attempt is owned until the server acknowledges its result, cancels it, or assigns a newer attempt.
 * - `#running` counts calls of `run` that have not returned; at most `capacity` are started.
 * - `#stopping` has the attempts that are not owned any more and whose `run` has not returned.
 */
export class Attempts {
  readonly #options: AttemptsOptions;
  readonly #outbox: ResultOutbox;
  readonly #silent: SilentStarts;
  readonly #owned = new Map<string, Attempt>();
  readonly #queue: Attempt[] = [];
  readonly #stopping = new Map<Attempt, { isStuck: boolean }>();
  #running = 0;
  /** Set once the worker drains. */
  #onDrained: (() => void) | undefined;

  constructor(options: AttemptsOptions) {
    const { clock, outboxMax: max, sendFrame } = options;
    this.#options = options;
    this.#silent = new SilentStarts({ clock, report: (attempt) => this.#reportStart(attempt) });
    this.#outbox = new ResultOutbox({ clock, max, sendFrame, onDropped: (id) => this.#drop(id) });
  }

  /** Attempts that the server should believe to be here: queued, running, or done and not acknowledged. */
  list(): JobAttempt[] {
    return listed([...this.#owned.values()]);
  }

  /** The same and stopped runs that have not ended, because they use slots. */
  inUse(): JobAttempt[] {
    return listed([...this.#owned.values(), ...this.#stopping.keys()]);
  }

  receive(message: Exclude<NodeIncoming, { type: "deployments_changed" }>): void {
    if (message.type === "job_assign" || message.type === "acks")
      for (const ack of message.acks ?? []) this.#acknowledged(ack);
    if (message.type === "job_result_ack") this.#acknowledged(message);
    if (message.type === "acks" || message.type === "job_result_ack") return;
    const attempt = this.#owned.get(message.job_id);
    if (message.type === "job_assign") this.#assigned(message, attempt);
    else if (attempt?.job.attempt_id !== message.attempt_id) return;
    else if (message.type === "job_cancel")
      this.#stop(attempt, new TenureError("JOB_CANCELLED", { job_id: message.job_id }));
  }

  #acknowledged({ job_id, attempt_id }: JobAttempt): void {
    const attempt = this.#owned.get(job_id);
    if (attempt?.job.attempt_id === attempt_id && attempt.state === "done") this.#release(attempt);
  }

  /** The server refused a result. The outbox retries what is retryable; the rest would be refused again. */
  refused(message: ErrorMessage): void {
    const attempt = this.#owned.get(message.job_id ?? "");
    if (attempt?.state !== "done" || message.retryable) return;
    this.#release(attempt);
    this.#options.onProblem(fromErrorMessage(message));
  }

  /** The connection is new: reports the state of every attempt. */
  ready(): void {
    for (const attempt of this.#owned.values()) this.#report(attempt);
  }

  /** Takes no more jobs. Resolves when every attempt has ended and is acknowledged. */
  drain(): Promise<void> {
    return new Promise((resolve) => {
      this.#onDrained = resolve;
      for (const attempt of [...this.#queue]) this.#fail(attempt, DRAINING);
      if (this.#owned.size === 0) resolve();
    });
  }

  /** Stops the attempts that have not ended; their jobs go to other nodes. */
  giveBack(): void {
    for (const attempt of this.#owned.values()) {
      if (attempt.state === "done") continue;
      abort(attempt, new TenureError("CONFLICT", { reason: DRAINING.message }));
      this.#fail(attempt, DRAINING);
    }
  }

  /** Stops every attempt without a message to the server. */
  abandon(reason: TenureError): void {
    for (const attempt of [...this.#owned.values()]) this.#stop(attempt, reason);
    this.#outbox.stop();
  }

  // --- starting ---

  #assigned({ type: _, acks: __, ...job }: JobAssign, known: Attempt | undefined): void {
    if (known && known.job.attempt_id > job.attempt_id) return; // a late message about a replaced attempt
    if (known?.job.attempt_id === job.attempt_id) this.#report(known);
    else this.#take(job, known);
  }

  #take(job: WorkerJob, older: Attempt | undefined): void {
    const { capacity, clock, isDeferring } = this.#options;
    if (older) this.#stop(older, new TenureError("STALE_ATTEMPT", older.job));
    const attempt = createAttempt(job, clock.monotonicMs());
    this.#owned.set(job.job_id, attempt);
    if (this.#onDrained) {
      this.#fail(attempt, DRAINING);
      return;
    }
    const startsNow = this.#running < capacity;
    // With `deferred_start` the report of the start, or the result, implies the acknowledgement.
    if (!startsNow || !isDeferring()) this.#acknowledge(attempt);
    if (startsNow) this.#start(attempt);
    else this.#enqueue(attempt);
  }

  #acknowledge(attempt: Attempt): void {
    const { job_id, attempt_id } = attempt.job;
    attempt.isAcknowledged = true;
    this.#options.send({ type: "job_ack", job_id, attempt_id });
  }

  #reportStart(attempt: Attempt): void {
    const { clock, send, isDeferring } = this.#options;
    const { job_id, attempt_id } = attempt.job;
    const implied = isDeferring() ? impliedBy(attempt, clock.monotonicMs()) : {};
    attempt.isAcknowledged = true;
    attempt.isReported = true;
    send({ type: "job_started", job_id, attempt_id, ...implied });
  }

  #enqueue(attempt: Attempt): void {
    const { clock, slotWithinMs } = this.#options;
    this.#queue.push(attempt);
    attempt.cancelTimer = clock.after(slotWithinMs, () => this.#fail(attempt, NO_SLOT));
  }

  #start(attempt: Attempt): void {
    const { clock, isDeferring, onRun } = this.#options;
    const { job_id, pool, timeout_ms } = attempt.job;
    attempt.cancelTimer();
    attempt.state = "running";
    attempt.startedAtMs = clock.monotonicMs();
    attempt.cancelTimer = clock.after(timeout_ms + TIMEOUT_GRACE_MS, () =>
      abort(attempt, new TenureError("JOB_TIMEOUT", { job_id })),
    );
    this.#running += 1;
    if (isDeferring() && this.#silent.isFast(pool)) this.#silent.add(attempt);
    else this.#reportStart(attempt);
    onRun?.();
    nextTick(() => void this.#perform(attempt));
  }

  async #perform(attempt: Attempt): Promise<void> {
    // An attempt that was stopped before it began does not begin.
    const end = attempt.stopped ? undefined : await this.#run(attempt);
    this.#running -= 1;
    this.#silent.ended(attempt);
    const wasStuck = this.#stopping.get(attempt)?.isStuck;
    this.#stopping.delete(attempt);
    if (wasStuck) this.#options.onStuck();
    // An attempt that was given back meanwhile is done: its result is sent already.
    if (end && this.#isRunning(attempt)) this.#finish(attempt, end);
    this.#options.onRun?.();
    const next = this.#running < this.#options.capacity ? this.#queue.shift() : undefined;
    if (next) this.#start(next);
  }

  async #run(attempt: Attempt): Promise<JobEnd> {
    try {
      const body = await this.#options.run(attempt.job as never, this.#contextOf(attempt));
      return { success: true, ...(body !== undefined && { body }) };
    } catch (thrown) {
      return { success: false, error: failureOf(thrown) };
    }
  }

  #contextOf(attempt: Attempt): RunContext {
    return {
      get signal() {
        attempt.controller ??= new AbortController();
        if (attempt.stopped) attempt.controller.abort(attempt.stopped);
        return attempt.controller.signal;
      },
      progress: (body) => {
        const { job_id, attempt_id } = attempt.job;
        if (!this.#isRunning(attempt)) return;
        if (this.#silent.remove(attempt)) this.#reportStart(attempt);
        this.#options.send({ type: "job_progress", job_id, attempt_id, body: body ?? null });
      },
    };
  }

  // --- ending ---

  #fail(attempt: Attempt, error: NodeJobError): void {
    this.#leaveQueue(attempt);
    this.#finish(attempt, { success: false, error });
  }

  #finish(attempt: Attempt, end: JobEnd): void {
    attempt.cancelTimer();
    attempt.state = "done";
    this.#silent.remove(attempt);
    const { clock, isDeferring } = this.#options;
    this.#outbox.add(attempt.job, end, () =>
      isDeferring() ? impliedBy(attempt, clock.monotonicMs()) : {},
    );
  }

  #drop(jobId: string): void {
    const attempt = this.#owned.get(jobId);
    if (attempt) this.#release(attempt);
    this.#options.onProblem(
      new TenureError("QUEUE_FULL", {
        queue: `dropped the oldest unacknowledged result (job ${jobId}): result outbox`,
        limit: this.#options.outboxMax,
      }),
    );
  }

  #release(attempt: Attempt): void {
    const { job_id } = attempt.job;
    if (this.#owned.get(job_id) !== attempt) return;
    this.#owned.delete(job_id);
    this.#outbox.remove(job_id);
    attempt.cancelTimer();
    this.#silent.remove(attempt);
    this.#leaveQueue(attempt);
    if (this.#owned.size === 0) this.#onDrained?.();
  }

  /** Discards the result of the attempt. Its slot is free only when `run` has returned. */
  #stop(attempt: Attempt, reason: TenureError): void {
    this.#release(attempt);
    abort(attempt, reason);
    if (attempt.state === "running") this.#awaitEnd(attempt);
  }

  /** Reports a stopped run that does not end, twice: the server acts on the second report. */
  #awaitEnd(attempt: Attempt): void {
    const { clock, onStuck } = this.#options;
    this.#stopping.set(attempt, { isStuck: false });
    const report = () => {
      const still = this.#stopping.get(attempt);
      if (!still) return;
      if (!still.isStuck) clock.after(STUCK_MS, report);
      still.isStuck = true;
      onStuck();
    };
    clock.after(STUCK_MS, report);
  }

  #leaveQueue(attempt: Attempt): void {
    const at = attempt.state === "queued" ? this.#queue.indexOf(attempt) : -1;
    if (at >= 0) this.#queue.splice(at, 1);
  }

  #isRunning(attempt: Attempt): boolean {
    return attempt.state === "running" && this.#owned.get(attempt.job.job_id) === attempt;
  }

  /** Sends the state of an attempt, to a server that assigned it again or that is new. */
  #report(attempt: Attempt): void {
    if (attempt.state === "done") this.#outbox.resend(attempt.job.job_id);
    else if (attempt.state === "queued") this.#acknowledge(attempt);
    else {
      this.#silent.remove(attempt);
      this.#reportStart(attempt);
    }
  }
}

/**
 * Calls `run` after the frames of this tick have left: it may keep the event loop busy for seconds, or end the
 * process, and the server should know by then that the job has started. Browsers have no `setImmediate`.
 */
const nextTick: (act: () => void) => void =
  globalThis.setImmediate ?? ((act) => setTimeout(act, 0));
