import type { Submission } from "./submission.ts";

/** The queue is copied when so many of its first entries are used up. */
const COMPACT_AT = 1_000;

/**
 * The jobs of a session that have not ended.
 *
 * - A job is open from `add` to `remove`, and found by its job id from `setJobId` on.
 * - `outstanding` counts the open jobs that are not `queued`; `admitNext` never lets it exceed `outstandingMax`.
 * - Queued jobs are admitted in the order they were added. The queue may hold jobs that were removed; they are skipped.
 */
export class OpenJobs {
  readonly #outstandingMax: number;
  readonly #byRequest = new Map<string, Submission>();
  readonly #byJob = new Map<string, Submission>();
  #queue: Submission[] = [];
  #queueHead = 0;
  #outstanding = 0;

  constructor(outstandingMax: number) {
    this.#outstandingMax = outstandingMax;
  }

  get size(): number {
    return this.#byRequest.size;
  }

  get queued(): number {
    return this.#byRequest.size - this.#outstanding;
  }

  /** In the order they were submitted. Jobs may be removed meanwhile. */
  all(): IterableIterator<Submission> {
    return this.#byRequest.values();
  }

  get(requestId: string): Submission | undefined {
    return this.#byRequest.get(requestId);
  }

  getByJob(jobId: string): Submission | undefined {
    return this.#byJob.get(jobId);
  }

  has(submission: Submission): boolean {
    return this.#byRequest.get(submission.requestId) === submission;
  }

  add(submission: Submission): void {
    this.#byRequest.set(submission.requestId, submission);
    this.#queue.push(submission);
  }

  /** Moves the next queued job to `waiting`; undefined when none is queued or there is no room. */
  admitNext(): Submission | undefined {
    while (this.#outstanding < this.#outstandingMax && this.#queueHead < this.#queue.length) {
      const submission = this.#queue[this.#queueHead++] as Submission;
      if (this.#queueHead > COMPACT_AT || this.#queueHead === this.#queue.length) {
        this.#queue = this.#queue.slice(this.#queueHead);
        this.#queueHead = 0;
      }
      if (!this.has(submission)) continue;
      this.#outstanding += 1;
      submission.state = "waiting";
      return submission;
    }
    return undefined;
  }

  setJobId(submission: Submission, jobId: string): void {
    if (submission.jobId !== undefined) this.#byJob.delete(submission.jobId);
    submission.jobId = jobId;
    this.#byJob.set(jobId, submission);
  }

  /** False when the job is not open any more: then nothing changes. */
  remove(submission: Submission): boolean {
    if (!this.has(submission)) return false;
    this.#byRequest.delete(submission.requestId);
    if (submission.state !== "queued") this.#outstanding -= 1;
    if (submission.jobId !== undefined) this.#byJob.delete(submission.jobId);
    return true;
  }

  /** Queued jobs stay open, but are not admitted any more. */
  clearQueue(): void {
    this.#queue = [];
    this.#queueHead = 0;
  }
}
