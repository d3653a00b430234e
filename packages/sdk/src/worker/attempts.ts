import {
  CAPACITY_MAX,
  type ErrorMessage,
  fromErrorMessage,
  type JobAssign,
  type JobAttempt,
  type NodeJobError,
  TenureError,
} from "@tenure/protocol";
import type { Cancel, Clock } from "../clock.ts";
import type { SendOutcome } from "../connection/link.ts";
import { type JobEnd, resultFrame } from "./job-end.ts";
import { DRAINING, failureOf, NO_PLACE } from "./job-failure.ts";
import type { NodeIncoming, NodeOutgoing } from "./node-connection.ts";

/** A job as `run` gets it. */
export interface WorkerJob<Payload = unknown> extends Omit<JobAssign, "type" | "payload"> {
  /** As `JSON.parse` reads it: a number is the nearest double, though the exact text was sent. */
  payload: Payload;
}

export interface RunContext {
  /** Aborts when the job is cancelled, has lost its place to another attempt, or the worker goes. */
  readonly signal: AbortSignal;
  /** Tells the session how it goes. What is told while there is no connection is lost; the result is not. */
  progress(body: unknown): void;
}

export type Run<Payload> = (job: WorkerJob<Payload>, context: RunContext) => unknown;

export interface AttemptLimits {
  /** Jobs that run at once. */
  capacity: number;
  /** Results that no server has acknowledged. Over it the oldest is dropped, and its job runs again elsewhere. */
  outboxMax: number;
  /** How long a job waits for one that was cancelled and does not stop, before another node gets it. */
  placeWithinMs: number;
}

export interface Attempts {
  /** Everything the server should believe to be here: waiting, running, or done and not acknowledged. */
  list(): JobAttempt[];
  /** The same, and runs that were stopped and have not ended: they use slots, and the server should know. */
  inUse(): JobAttempt[];
  heard(
    message: Extract<NodeIncoming, { type: "job_assign" | "job_cancel" | "job_result_ack" }>,
  ): void;
  refused(message: ErrorMessage): void;
  /** A new connection: says of every attempt where it is. */
  ready(): void;
  /** Takes nothing more. Resolves when everything here has ended and is acknowledged. */
  drain(): Promise<void>;
  /** Ends what still runs; its jobs go to other nodes. */
  giveBack(): void;
  /** They are somebody else's now: stops everything, says nothing. */
  abandon(reason: TenureError): void;
}

interface Attempt {
  readonly job: WorkerJob;
  state: "queued" | "running" | "done";
  /** Made when `run` asks for it: most jobs never look at it. */
  controller: AbortController | undefined;
  /** Why it was stopped; set also before anybody has asked for the signal. */
  stopped: TenureError | undefined;
  endTimer: Cancel;
  /** The result as it goes over the wire, kept until it is acknowledged. */
  result: { frame: string; saidMs: number; tries: number } | undefined;
}

/** A server's own deadline comes first; this one is for when it cannot reach us. */
const TIMEOUT_GRACE_MS = 1_000;
/** How long a run that was stopped may take to end before the server hears that it still uses its slot. */
const STUCK_MS = 1_000;
const SWEEP_MS = 1_000;
const SAY_AGAIN_MS = 5_000;
const SAY_AGAIN_DOUBLED_MAX = 3;

/**
 * What a worker holds. One job is here at most once, as its newest attempt; an older one is stopped and what it
 * still returns is nobody's any more. A result stays until the server has said that it has it.
 */
export function createAttempts({
  clock,
  limits,
  run,
  send,
  sendFrame,
  problem,
  stuck,
  runs,
}: {
  clock: Clock;
  limits: AttemptLimits;
  run: Run<never>;
  send: (message: NodeOutgoing) => SendOutcome;
  sendFrame: (frame: string) => SendOutcome;
  problem: (error: TenureError) => void;
  /** Runs that were stopped do not end, or have ended at last: worth a heartbeat of its own. */
  stuck: () => void;
  /** A run is about to begin, or has ended. */
  runs?: (() => void) | undefined;
}): Attempts {
  const held = new Map<string, Attempt>();
  const queue: Attempt[] = [];
  /** Runs in progress, also of attempts that are not held any more and have not stopped yet. */
  let running = 0;
  /** Those of them that are not held any more. */
  const unended = new Map<Attempt, { isStuck: boolean }>();
  let results = 0;
  let cancelSweep: Cancel | undefined;
  let drained: (() => void) | undefined;

  // --- taking ---

  function assigned({ type: _, ...job }: JobAssign): void {
    const known = held.get(job.job_id);
    if (known && known.job.attempt_id > job.attempt_id) return; // late news of what was replaced here
    if (known?.job.attempt_id === job.attempt_id) tell(known);
    else take(job, known);
  }

  function take(job: WorkerJob, older: Attempt | undefined): void {
    if (older) stop(older, new TenureError("STALE_ATTEMPT", older.job));
    const attempt = createAttempt(job);
    held.set(job.job_id, attempt);
    if (drained) fail(attempt, DRAINING);
    else {
      send({ type: "job_ack", job_id: job.job_id, attempt_id: job.attempt_id });
      if (running < limits.capacity) start(attempt);
      else enqueue(attempt);
    }
  }

  function enqueue(attempt: Attempt): void {
    queue.push(attempt);
    attempt.endTimer = clock.after(limits.placeWithinMs, () => fail(attempt, NO_PLACE));
  }

  function start(attempt: Attempt): void {
    const { job_id, attempt_id, timeout_ms } = attempt.job;
    attempt.endTimer();
    attempt.state = "running";
    attempt.endTimer = clock.after(timeout_ms + TIMEOUT_GRACE_MS, () =>
      abort(attempt, new TenureError("JOB_TIMEOUT", { job_id })),
    );
    running += 1;
    send({ type: "job_started", job_id, attempt_id });
    runs?.();
    soon(() => void perform(attempt));
  }

  async function perform(attempt: Attempt): Promise<void> {
    // What was cancelled before it began need not begin.
    const end = attempt.stopped ? undefined : await endOf(attempt);
    running -= 1;
    const wasStuck = unended.get(attempt)?.isStuck;
    unended.delete(attempt);
    if (wasStuck) stuck();
    // Not when it was given back meanwhile: its result is said already.
    if (end && isHeld(attempt) && attempt.state === "running") finish(attempt, end);
    runs?.();
    startNext();
  }

  async function endOf(attempt: Attempt): Promise<JobEnd> {
    try {
      const body = await run(attempt.job as never, contextOf(attempt));
      return { success: true, ...(body !== undefined && { body }) };
    } catch (thrown) {
      return { success: false, error: failureOf(thrown) };
    }
  }

  function startNext(): void {
    const next = running < limits.capacity ? queue.shift() : undefined;
    if (next) start(next);
  }

  function contextOf(attempt: Attempt): RunContext {
    return {
      get signal() {
        attempt.controller ??= new AbortController();
        if (attempt.stopped) attempt.controller.abort(attempt.stopped);
        return attempt.controller.signal;
      },
      progress(body) {
        const { job_id, attempt_id } = attempt.job;
        if (isHeld(attempt) && attempt.state === "running")
          send({ type: "job_progress", job_id, attempt_id, body: body ?? null });
      },
    };
  }

  // --- ending ---

  function fail(attempt: Attempt, error: NodeJobError): void {
    leaveQueue(attempt);
    finish(attempt, { success: false, error });
  }

  function finish(attempt: Attempt, end: JobEnd): void {
    attempt.endTimer();
    attempt.state = "done";
    results += 1;
    attempt.result = { frame: resultFrame(attempt.job, end), saidMs: 0, tries: 0 };
    sayResult(attempt, attempt.result);
    if (results > limits.outboxMax) dropOldest();
    cancelSweep ??= clock.after(SWEEP_MS, sweep);
  }

  function sayResult(attempt: Attempt, result: NonNullable<Attempt["result"]>): void {
    result.saidMs = clock.monotonicMs();
    if (sendFrame(result.frame) !== "too_large") return;
    const error = { code: "PAYLOAD_TOO_LARGE", message: "the result is too large to be sent" };
    result.frame = resultFrame(attempt.job, { success: false, error });
    sendFrame(result.frame);
  }

  function dropOldest(): void {
    const oldest = [...held.values()].find(({ state }) => state === "done");
    if (!oldest) return;
    forget(oldest);
    problem(
      new TenureError("QUEUE_FULL", {
        queue: `results that no server has acknowledged; that of job ${oldest.job.job_id} is dropped, which`,
        limit: limits.outboxMax,
      }),
    );
  }

  function sweep(): void {
    const nowMs = clock.monotonicMs();
    for (const attempt of held.values()) {
      const { result } = attempt;
      if (!result) continue;
      const patientMs = SAY_AGAIN_MS * 2 ** Math.min(result.tries, SAY_AGAIN_DOUBLED_MAX);
      if (nowMs - result.saidMs < patientMs) continue;
      result.tries += 1;
      sayResult(attempt, result);
    }
    cancelSweep = results > 0 ? clock.after(SWEEP_MS, sweep) : undefined;
  }

  function forget(attempt: Attempt): void {
    if (!isHeld(attempt)) return;
    held.delete(attempt.job.job_id);
    if (attempt.result) results -= 1;
    attempt.endTimer();
    leaveQueue(attempt);
    if (held.size === 0) drained?.();
  }

  /** Nobody waits for its result any more. Its place is free only when `run` has returned. */
  function stop(attempt: Attempt, reason: TenureError): void {
    forget(attempt);
    abort(attempt, reason);
    if (attempt.state === "running") awaitEnd(attempt);
  }

  /** Most runs end when they are stopped. One that does not is reported, twice: the server believes what it hears again. */
  function awaitEnd(attempt: Attempt): void {
    unended.set(attempt, { isStuck: false });
    const report = () => {
      const still = unended.get(attempt);
      if (!still) return;
      if (!still.isStuck) clock.after(STUCK_MS, report);
      still.isStuck = true;
      stuck();
    };
    clock.after(STUCK_MS, report);
  }

  function abort(attempt: Attempt, reason: TenureError): void {
    attempt.stopped ??= reason;
    attempt.controller?.abort(attempt.stopped);
  }

  function leaveQueue(attempt: Attempt): void {
    const at = attempt.state === "queued" ? queue.indexOf(attempt) : -1;
    if (at >= 0) queue.splice(at, 1);
  }

  function isHeld(attempt: Attempt): boolean {
    return held.get(attempt.job.job_id) === attempt;
  }

  /** Where it is, to a server that asks by sending it again, or that is new. */
  function tell(attempt: Attempt): void {
    const { job_id, attempt_id } = attempt.job;
    if (attempt.result) sayResult(attempt, attempt.result);
    else if (attempt.state === "running") send({ type: "job_started", job_id, attempt_id });
    else send({ type: "job_ack", job_id, attempt_id });
  }

  return {
    list: () => listed([...held.values()]),
    inUse: () => listed([...held.values(), ...unended.keys()]),
    heard(message) {
      const attempt = held.get(message.job_id);
      if (message.type === "job_assign") assigned(message);
      else if (attempt?.job.attempt_id !== message.attempt_id) return;
      else if (message.type === "job_cancel")
        stop(attempt, new TenureError("JOB_CANCELLED", { job_id: message.job_id }));
      else if (attempt.result) forget(attempt);
    },
    refused(message) {
      const attempt = held.get(message.job_id ?? "");
      // Said again it would be refused again. What is retryable is said again by the sweep.
      if (!attempt?.result || message.retryable) return;
      forget(attempt);
      problem(fromErrorMessage(message));
    },
    ready() {
      for (const attempt of held.values()) tell(attempt);
    },
    async drain() {
      await new Promise<void>((resolve) => {
        drained = resolve;
        for (const attempt of [...queue]) fail(attempt, DRAINING);
        if (held.size === 0) resolve();
      });
    },
    giveBack() {
      for (const attempt of held.values()) {
        if (attempt.state === "done") continue;
        abort(attempt, new TenureError("CONFLICT", { reason: DRAINING.message }));
        fail(attempt, DRAINING);
      }
    },
    abandon(reason) {
      for (const attempt of [...held.values()]) stop(attempt, reason);
      cancelSweep?.();
      cancelSweep = undefined;
    },
  };
}

/**
 * `run` begins after the frames of this turn have left: it may keep the event loop busy for seconds, or end the
 * process, and the server should know by then who has the job. Browsers have no turn to wait for.
 */
const soon: (act: () => void) => void = globalThis.setImmediate ?? ((act) => setTimeout(act, 0));

const listed = (attempts: readonly Attempt[]): JobAttempt[] =>
  attempts.slice(0, CAPACITY_MAX).map(({ job }) => attemptOf(job));

const attemptOf = ({ job_id, attempt_id }: WorkerJob): JobAttempt => ({ job_id, attempt_id });

function createAttempt(job: WorkerJob): Attempt {
  return {
    job,
    state: "queued",
    controller: undefined,
    stopped: undefined,
    endTimer: () => {},
    result: undefined,
  };
}
