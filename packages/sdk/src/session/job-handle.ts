import type { JobOutcome, JobResultToSession } from "@tenure/protocol";
import type { SessionIncoming } from "./session-connection.ts";

/** How a job ended, as the server told it. */
export interface JobResult<Body = unknown> extends Omit<JobResultToSession, "type" | "body"> {
  /** What `run` of the worker returned. */
  body: Body;
}

/** What is told of a job before its result. */
export type JobEvent = Extract<
  SessionIncoming,
  { type: "job_accepted" | "job_update" | "job_progress" }
>;

/**
 * A submitted job: a promise of its result that also tells how it goes.
 *
 * `for await (const event of job)` gives what is told from the moment the loop begins, and ends with the job; begun
 * right after `submit` it misses nothing.
 */
export interface JobHandle<Body = unknown>
  extends Promise<JobResult<Body>>,
    AsyncIterable<JobEvent> {
  readonly requestId: string;
  /** Undefined until the server has accepted it. */
  readonly jobId: string | undefined;
  /** Asks for its end. The promise still tells how it ended: a job may be faster than its cancellation. */
  cancel(): void;
  [Symbol.asyncIterator](): AsyncIterableIterator<JobEvent>;
}

/** The job ended, and not well. Its `code` may be one of the worker's own. */
export class JobFailed extends Error {
  override readonly name = "JobFailed";
  readonly code: string;
  readonly outcome: JobOutcome;
  readonly requestId: string;
  /** Undefined when it was cancelled before anybody had heard of it. */
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
  /** Readers get what they have not read yet, and then the end. */
  end(): void;
  open(): AsyncIterableIterator<JobEvent>;
}

/** Per reader. One that falls behind misses the oldest; the result comes another way. */
const UNREAD_MAX = 1_000;

interface Reader {
  unread: JobEvent[];
  wake(): void;
}

/** Costs nothing while nobody reads. */
export function createJobFeed(): JobFeed {
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
      // Known from here on, not from the first `next`: what comes in between is kept for it.
      const reader: Reader = { unread: [], wake: () => {} };
      readers.add(reader);
      return read(reader);
    },
  };
}
