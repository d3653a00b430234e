import type { JobOutcome, JobResultToSession } from "@tenure/protocol";
import type { SessionIncoming } from "./session-connection.ts";

/** How a job ended, as the server reported it. */
export interface JobResult<Body = unknown> extends Omit<JobResultToSession, "type" | "body"> {
  /** What `run` of the worker returned. */
  body: Body;
}

/** News of a job before its result. */
export type JobEvent = Extract<
  SessionIncoming,
  { type: "job_accepted" | "job_update" | "job_progress" }
>;

/**
 * A submitted job: a promise of its result, and an iterable of its events.
 *
 * `for await (const event of job)` yields the events from the moment the loop begins, and ends with the job. A loop
 * that begins right after `submit` misses none.
 */
export interface JobHandle<Body = unknown>
  extends Promise<JobResult<Body>>,
    AsyncIterable<JobEvent> {
  readonly requestId: string;
  /** Undefined until the server has accepted it. */
  readonly jobId: string | undefined;
  /** Requests cancellation. The promise settles as the job ends: it may finish before it is cancelled. */
  cancel(): void;
  [Symbol.asyncIterator](): AsyncIterableIterator<JobEvent>;
}

/** The job failed, timed out or was cancelled. Its `code` may be one of the worker's own. */
export class JobFailed extends Error {
  override readonly name = "JobFailed";
  readonly code: string;
  readonly outcome: JobOutcome;
  readonly requestId: string;
  /** Undefined when it was cancelled before it was submitted. */
  readonly result: JobResult | undefined;

  constructor(ended: Pick<JobResult, "request_id" | "outcome" | "error">, result?: JobResult) {
    super(ended.error?.message ?? `the job ended as ${ended.outcome}`);
    this.code = ended.error?.code ?? ended.outcome.toUpperCase();
    this.outcome = ended.outcome;
    this.requestId = ended.request_id;
    this.result = result;
  }
}

export interface JobFeed {
  push(event: JobEvent): void;
  /** Readers get their unread events, and then the end. */
  end(): void;
  open(): AsyncIterableIterator<JobEvent>;
}

/** Per reader. A slow reader misses the oldest events; the result comes through the promise. */
const UNREAD_MAX = 1_000;

interface Reader {
  unread: JobEvent[];
  wake(): void;
}

/** Distributes the events of one job to its readers. Without readers it keeps nothing. `onReader`: there is one more. */
export function createJobFeed(onReader: () => void): JobFeed {
  const readers = new Set<Reader>();
  let isOver = false;

  async function* read(reader: Reader): AsyncGenerator<JobEvent, undefined> {
    try {
      for (;;) {
        const event = reader.unread.shift();
        if (event) yield event;
        else if (isOver) return;
        else
          await new Promise<void>((resolve) => {
            reader.wake = resolve;
          });
      }
    } finally {
      readers.delete(reader);
    }
  }

  return {
    push(event) {
      for (const reader of readers) {
        reader.unread.push(event);
        if (reader.unread.length > UNREAD_MAX) reader.unread.shift();
        reader.wake();
      }
    },
    end() {
      isOver = true;
      for (const reader of readers) reader.wake();
    },
    open() {
      // Registered now and not at the first `next`, so that events in between are kept.
      const reader: Reader = { unread: [], wake: () => {} };
      readers.add(reader);
      onReader();
      return read(reader);
    },
  };
}
