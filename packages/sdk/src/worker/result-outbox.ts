import type { Deferred, JobAttempt, JobResultToServer } from "@tenure/protocol";
import type { Cancel, Clock } from "../clock.ts";
import type { SendOutcome } from "../connection/link.ts";

/** How a job ended on this worker. */
export type JobEnd = Pick<JobResultToServer, "success" | "body" | "error">;

const SWEEP_MS = 1_000;
const RESEND_MS = 5_000;
const RESEND_DOUBLED_MAX = 3;

interface UnackedResult {
  readonly job: JobAttempt;
  /** The `job_result` as JSON. */
  frame: string;
  /** Steps that it implies. Made for each send: they are durations until then. */
  readonly fields: () => Deferred;
  sentAtMs: number;
  tries: number;
}

interface ResultOutboxOptions {
  clock: Clock;
  /** More results than this are not kept. */
  max: number;
  sendFrame: (frame: string) => SendOutcome;
  /** The oldest result was dropped to make room. */
  onDropped: (jobId: string) => void;
}

/**
 * Results that the server has not acknowledged, in the order they came about. Each is sent at once, again after 5 s
 * and then at growing intervals, until it is removed. There is at most one per job.
 */
export class ResultOutbox {
  readonly #options: ResultOutboxOptions;
  readonly #unacked = new Map<string, UnackedResult>();
  #cancelSweep: Cancel | undefined;

  constructor(options: ResultOutboxOptions) {
    this.#options = options;
  }

  add({ job_id, attempt_id }: JobAttempt, end: JobEnd, fields: () => Deferred = () => ({})): void {
    const { clock, max, onDropped } = this.#options;
    const job = { job_id, attempt_id };
    const result = { job, frame: resultFrame(job, end), fields, sentAtMs: 0, tries: 0 };
    this.#unacked.set(job_id, result);
    this.#send(result);
    const [oldest] = this.#unacked.keys();
    if (this.#unacked.size > max && oldest !== undefined) {
      this.#unacked.delete(oldest);
      onDropped(oldest);
    }
    this.#cancelSweep ??= clock.after(SWEEP_MS, () => this.#sweep());
  }

  resend(jobId: string): void {
    const result = this.#unacked.get(jobId);
    if (result) this.#send(result);
  }

  remove(jobId: string): void {
    this.#unacked.delete(jobId);
  }

  stop(): void {
    this.#cancelSweep?.();
    this.#cancelSweep = undefined;
  }

  #send(result: UnackedResult): void {
    const { clock, sendFrame } = this.#options;
    result.sentAtMs = clock.monotonicMs();
    const fields = JSON.stringify(result.fields()).slice(1);
    const frame = fields === "}" ? result.frame : `${result.frame.slice(0, -1)},${fields}`;
    if (sendFrame(frame) !== "too_large") return;
    const error = { code: "PAYLOAD_TOO_LARGE", message: "the result is too large to be sent" };
    result.frame = resultFrame(result.job, { success: false, error });
    sendFrame(result.frame);
  }

  #sweep(): void {
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    for (const result of this.#unacked.values()) {
      const waitMs = RESEND_MS * 2 ** Math.min(result.tries, RESEND_DOUBLED_MAX);
      if (nowMs - result.sentAtMs < waitMs) continue;
      result.tries += 1;
      this.#send(result);
    }
    const isNeeded = this.#unacked.size > 0;
    this.#cancelSweep = isNeeded ? clock.after(SWEEP_MS, () => this.#sweep()) : undefined;
  }
}

/** A body that is not JSON fails the job, not the worker. */
function resultFrame(job: JobAttempt, end: JobEnd): string {
  const head = { type: "job_result", ...job } as const;
  try {
    return JSON.stringify({ ...head, ...end } satisfies JobResultToServer);
  } catch (error) {
    const failure = { code: "INTERNAL", message: `the result is not JSON: ${String(error)}` };
    return JSON.stringify({ ...head, success: false, error: failure });
  }
}
