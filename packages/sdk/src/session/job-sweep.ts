import type { Cancel, Clock } from "../clock.ts";
import type { JobSender } from "./job-sender.ts";
import type { OpenJobs } from "./open-jobs.ts";
import { noAnswer, type Submission } from "./submission.ts";
import type { Turns } from "./turns.ts";

const SWEEP_MS = 1_000;
const CHECKS_DOUBLED_MAX = 2;
const CANCEL_RETRY_MS = 2_000;
/** A sweep that is late by so much: the process was suspended, or its page is in the background. */
const SUSPENDED_MS = 5_000;

interface JobSweepOptions {
  clock: Clock;
  /** How long a job is retried without a server that confirms it. */
  patienceMs: number;
  /** A job without news for so long is sent again. */
  checkEveryMs: number;
  open: OpenJobs;
  turns: Turns;
  sender: JobSender;
  onTimeout: (submission: Submission) => void;
}

/** Resends jobs without news and times them out. It runs every second while a job is open or a turn waits for its end. */
export class JobSweep {
  readonly #options: JobSweepOptions;
  #cancel: Cancel | undefined;
  #sweptAtMs = 0;

  constructor(options: JobSweepOptions) {
    this.#options = options;
  }

  startIfNeeded(): void {
    const { clock, open, turns } = this.#options;
    if (this.#cancel || (open.size === 0 && !turns.isEnding())) return;
    this.#sweptAtMs = clock.monotonicMs();
    this.#cancel = clock.after(SWEEP_MS, () => this.#run());
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #run(): void {
    const { clock, patienceMs, open, turns, onTimeout } = this.#options;
    const nowMs = clock.monotonicMs();
    const lateMs = nowMs - this.#sweptAtMs - SWEEP_MS;
    if (lateMs >= SUSPENDED_MS) this.#extend(lateMs);
    for (const submission of open.all()) {
      if (nowMs - submission.confirmedAtMs >= patienceMs) onTimeout(submission);
      else this.#check(submission, nowMs);
    }
    turns.resend("same");
    turns.rejectWaiting(noAnswer("no answer to turn_finalize"), patienceMs);
    this.#cancel = undefined;
    this.startIfNeeded();
  }

  /**
   * The process was suspended (a frozen container, a closed laptop), so an answer may lie unread. That time does not count,
   * and the job is sent again. Once only until the server confirms it: in a background page every sweep is late.
   */
  #extend(suspendedMs: number): void {
    const { clock, open, turns, sender } = this.#options;
    turns.extend(suspendedMs);
    for (const submission of open.all()) {
      if (submission.isExtended) continue;
      submission.isExtended = true;
      const extendedMs = submission.confirmedAtMs + suspendedMs;
      submission.confirmedAtMs = Math.min(extendedMs, clock.monotonicMs());
      if (submission.state === "sent" || submission.state === "accepted") sender.send(submission);
    }
  }

  #check(submission: Submission, nowMs: number): void {
    const { checkEveryMs, sender } = this.#options;
    const { state, sentAtMs = nowMs, confirmedAtMs, cancelSentAtMs } = submission;
    if (cancelSentAtMs !== undefined && nowMs - cancelSentAtMs >= CANCEL_RETRY_MS)
      sender.sendCancel(submission);
    if (state !== "sent" && state !== "accepted") return;
    const waitMs = checkEveryMs * 2 ** Math.min(submission.checks, CHECKS_DOUBLED_MAX);
    if (nowMs - Math.max(sentAtMs, confirmedAtMs) < waitMs) return;
    submission.checks += 1;
    sender.send(submission);
  }
}
