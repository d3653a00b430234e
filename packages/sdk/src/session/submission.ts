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
  /** Any JSON. Written down at once: what happens to the object later changes nothing. */
  payload: unknown;
  /** Names this job: submitted again under the same id, it is the same job. Made when left out. */
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

/** Where in a turn a job stands. */
export interface TurnPlace {
  turn: TurnState;
  finalize?: FinalizeReason | undefined;
}

/** One job that was asked for and has not ended. */
export interface Submission {
  readonly requestId: string;
  /** What was asked, as it goes over the wire; said again word by word. */
  readonly frame: string;
  readonly place: TurnPlace | undefined;
  readonly handle: JobHandle;
  readonly feed: JobFeed;
  jobId: string | undefined;
  /** `queued`: waits for room among the jobs that have not ended. `held`: refused for now, until its pause is over. */
  state: "queued" | "waiting" | "held" | "sent" | "accepted";
  /** Counts against its turn until the server has accepted it once. */
  isNew: boolean;
  failures: number;
  checks: number;
  saidMs: number | undefined;
  /** The last word of the server that it has this job; before the first, when it was submitted. */
  heardMs: number;
  /** Time for which this process was stopped was left out once since then. */
  isForgiven: boolean;
  cancelSaidMs: number | undefined;
  isCancelled: boolean;
  lastError: TenureError | undefined;
  endPause: Cancel;
  resolve(result: JobResult): void;
  reject(error: Error): void;
}

/** Checked here and not only by the server: a frame that it cannot read would cost the whole connection. */
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

export interface SubmitFrame {
  requestId: string;
  frame: string;
}

export function createSubmission(
  { requestId, frame }: SubmitFrame,
  { place, nowMs, cancel }: { place: TurnPlace | undefined; nowMs: number; cancel: () => void },
): Submission {
  const feed = createJobFeed();
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
        // Who follows the job may well leave its failure to somebody else; that is no unhandled error.
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
    saidMs: undefined,
    heardMs: nowMs,
    isForgiven: false,
    cancelSaidMs: undefined,
    isCancelled: false,
    lastError: undefined,
    endPause: () => {},
    resolve,
    reject,
  };
  return submission;
}

/** A handle of a job that never came about. */
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

/** Cancelled before any server had heard of it. */
export function cancelledUnheard(requestId: string): JobFailed {
  const error = { code: "JOB_CANCELLED", message: "the job was cancelled before it was submitted" };
  return new JobFailed({ request_id: requestId, outcome: "cancelled", error });
}

/** No server said anything of it for as long as we wait. */
export const unanswered = ({ state }: Submission): TenureError =>
  noAnswer(state === "waiting" ? "not connected" : "no answer");

export const noAnswer = (reason: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "the server", reason });

export function watchSignal(
  signal: AbortSignal | undefined,
  { handle }: Submission,
  cancel: () => void,
): void {
  if (!signal) return;
  signal.addEventListener("abort", cancel, { once: true });
  const forget = () => signal.removeEventListener("abort", cancel);
  handle.then(forget, forget);
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

const NOT_JSON = "payload: is not JSON";
