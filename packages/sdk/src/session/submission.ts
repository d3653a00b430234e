import {
  type FinalizeReason,
  JobSpec,
  type JobSubmit,
  parseRequest,
  TenureError,
} from "@tenure/protocol";
import type { Cancel } from "../clock.ts";
import { randomId } from "../random-id.ts";
import {
  createJobFeed,
  type JobEvent,
  JobFailed,
  type JobFeed,
  type JobHandle,
  type JobResult,
} from "./job-handle.ts";
import type { TurnState } from "./turns.ts";

export interface SubmitOptions {
  pool: string;
  /** Any JSON. It is serialized at once: later changes to the object have no effect. */
  payload: unknown;
  /** Idempotency key: submitted again under the same id, it is the same job. Random when left out. */
  requestId?: string;
  /** Only nodes that have it ready. */
  service?: string;
  /** 0 to 9, higher first. */
  priority?: number;
  /** How long one attempt may run; the server's setting when left out. */
  timeoutMs?: number;
  /** How long it may wait for a node, at most an hour; the server's setting (10 s) when left out. */
  pendingMs?: number;
  traceId?: string;
  /** Cancels the job. */
  signal?: AbortSignal;
}

/** The turn of a job, and whether the job ends it. */
export interface TurnPlace {
  turn: TurnState;
  finalize?: FinalizeReason | undefined;
}

/**
 * A job that was submitted and has not ended.
 *
 *     queued    waits for room under `outstandingMax`
 *     waiting   goes out as soon as the connection, its turn and the send buffer allow it
 *     sent      is on its way, without an answer on this connection
 *     paused    was refused for now, and is `waiting` again after a pause
 *     accepted  is confirmed by the server on this connection
 *
 * queued → waiting → sent → accepted, sent → paused → waiting. A new connection makes `sent` and `accepted` jobs `waiting`.
 */
export interface Submission {
  readonly requestId: string;
  /** The `job_submit` as JSON, resent unchanged. */
  readonly frame: string;
  readonly place: TurnPlace | undefined;
  readonly handle: JobHandle;
  readonly feed: JobFeed;
  jobId: string | undefined;
  state: "queued" | "waiting" | "paused" | "sent" | "accepted";
  /** True until the server has accepted it once; until then it counts as unaccepted in its turn. */
  isNew: boolean;
  failures: number;
  /** Resends since the server last gave it a job id. */
  checks: number;
  sentAtMs: number | undefined;
  /** When the server last confirmed that it has this job; before that, when it was submitted or admitted. */
  confirmedAtMs: number;
  /** The time for which this process was suspended was added once since then. */
  isExtended: boolean;
  cancelSentAtMs: number | undefined;
  isCancelled: boolean;
  /** It has, or had, a reader of its events: the server should send its states. */
  isWatched: boolean;
  lastError: TenureError | undefined;
  cancelPause: Cancel;
  resolve(result: JobResult): void;
  reject(error: Error): void;
}

/** Checked here and not only by the server, because an invalid frame would cost the whole connection. */
export function toFrame(options: SubmitOptions, place: TurnPlace | undefined): SubmitFrame {
  const { payload, ...rest } = specOf(options);
  const text = toJson(payload);
  const turn = place && { turn: true, ...(place.finalize && { finalize: place.finalize }) };
  const head: Omit<JobSubmit, "payload"> = { type: "job_submit", ...rest, ...turn };
  return {
    requestId: rest.request_id,
    frame: `${JSON.stringify(head).slice(0, -1)},"payload":${text}}`,
  };
}

interface SubmitFrame {
  requestId: string;
  frame: string;
}

/** The frame with more fields. `again` saves the server work for jobs it has, which after a reconnect are most of them. */
export const withFields = (frame: string, fields: SubmitFlags): string => {
  const more = JSON.stringify(fields).slice(1);
  return more === "}" ? frame : `${frame.slice(0, -1)},${more}`;
};

export type SubmitFlags = Pick<JobSubmit, "again" | "updates">;

export function createSubmission(
  { requestId, frame }: SubmitFrame,
  {
    place,
    nowMs,
    cancel,
    onReader = () => {},
  }: {
    place: TurnPlace | undefined;
    nowMs: number;
    cancel: () => void;
    onReader?: () => void;
  },
): Submission {
  const feed = createJobFeed(onReader);
  let resolve: Submission["resolve"] = () => {};
  let reject: Submission["reject"] = () => {};
  const promise = new Promise<JobResult>((onResult, onError) => {
    resolve = onResult;
    reject = onError;
  });
  const handle = Object.defineProperties(promise, {
    requestId: { value: requestId },
    jobId: { get: () => submission.jobId },
    cancel: { value: cancel },
    [Symbol.asyncIterator]: {
      value(): AsyncIterableIterator<JobEvent> {
        // A caller that only iterates handles no rejection, and that is not an unhandled error.
        promise.catch(() => {});
        return feed.open();
      },
    },
  }) as JobHandle;
  const submission: Submission = {
    requestId,
    frame,
    place,
    handle,
    feed,
    jobId: undefined,
    state: "queued",
    isNew: true,
    failures: 0,
    checks: 0,
    sentAtMs: undefined,
    confirmedAtMs: nowMs,
    isExtended: false,
    cancelSentAtMs: undefined,
    isCancelled: false,
    isWatched: false,
    lastError: undefined,
    cancelPause: () => {},
    resolve,
    reject,
  };
  return submission;
}

/** The handle of a job that was refused before it was submitted. */
export function refusedHandle(requestId: string, error: Error): JobHandle {
  const place = undefined;
  const submission = createSubmission(
    { requestId, frame: "" },
    { place, nowMs: 0, cancel: () => {} },
  );
  submission.reject(error);
  submission.feed.end();
  return submission.handle;
}

export function cancelledBeforeSubmit(requestId: string): JobFailed {
  const error = { code: "JOB_CANCELLED", message: "the job was cancelled before it was submitted" };
  return new JobFailed({ request_id: requestId, outcome: "cancelled", error });
}

export const noAnswer = (reason: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "the server", reason });

export function cancelOnAbort(
  signal: AbortSignal | undefined,
  { handle }: Submission,
  cancel: () => void,
): void {
  if (!signal) return;
  signal.addEventListener("abort", cancel, { once: true });
  const stopListening = () => signal.removeEventListener("abort", cancel);
  handle.then(stopListening, stopListening);
}

function specOf(options: SubmitOptions): JobSpec {
  const { pool, payload, service, priority, timeoutMs, pendingMs, traceId } = options;
  return parseRequest(JobSpec, {
    request_id: options.requestId ?? randomId(),
    pool,
    ...(service !== undefined && { service }),
    ...(priority !== undefined && { priority }),
    ...(timeoutMs !== undefined && { timeout_ms: timeoutMs }),
    ...(pendingMs !== undefined && { pending_ms: pendingMs }),
    ...(traceId !== undefined && { trace_id: traceId }),
    payload,
  });
}

function toJson(payload: unknown): string {
  try {
    const text: string | undefined = JSON.stringify(payload);
    if (text !== undefined) return text;
  } catch (error) {
    throw new TenureError("INVALID_REQUEST", { reason: NOT_JSON }, { cause: error });
  }
  throw new TenureError("INVALID_REQUEST", { reason: NOT_JSON });
}

const NOT_JSON = "payload: must be a JSON value";
