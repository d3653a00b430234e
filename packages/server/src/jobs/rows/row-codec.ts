import {
  cutText,
  FinalizeReason,
  type JobError,
  JobSpec,
  Tenant,
  TenureError,
} from "@tenure/protocol";
import * as z from "zod";
import { type JobRecord, resultText } from "../job.ts";
import { retryPausesOf } from "../policy/retry-policy.ts";
import type { NewJob } from "../store/job-store.ts";
import type { RowHead, WholeRow } from "./row-store.ts";

/**
 * The column `spec`: the optional fields of `POST /jobs` by their names there, and below them what the server adds. SQL may
 * write it, so it is checked whenever it is read, and unknown fields are dropped.
 */
const RowSpec = JobSpec.pick({
  service: true,
  timeout_ms: true,
  pending_ms: true,
  trace_id: true,
  retry: true,
}).extend({
  token: z.string().optional(),
  session_id: z.string().optional(),
  turn: z.boolean().optional(),
  finalize: FinalizeReason.optional(),
  origin: z.string().optional(),
  ack_timeout_ms: z.int().min(1).optional(),
  attempts_max: z.int().min(1).optional(),
});

/** The checks of columns that SQL may have written, as `POST /jobs` has them. */
const RowWords = JobSpec.pick({ request_id: true, pool: true, priority: true }).extend({
  tenant: Tenant,
});

/** Of a row that SQL wrote without one. A word: the binding separates its words by spaces. */
const NO_HASH = "none";

/** Stands for no limit of the wait in a pool: ten years. */
export const NO_LIMIT_MS = 315_360_000_000;

export interface RowDefaults {
  instanceId: string;
  ackTimeoutMs: number;
  runTimeoutMs: number;
  attemptsMax: number;
}

export const specOfJob = (job: NewJob): object => ({
  service: job.service,
  timeout_ms: job.runTimeoutMs,
  pending_ms: job.pendingTimeoutMs === NO_LIMIT_MS ? undefined : job.pendingTimeoutMs,
  trace_id: job.traceId,
  token: job.token,
  session_id: job.sessionId,
  turn: job.turn || undefined,
  finalize: job.finalize,
  origin: job.originInstanceId,
  ack_timeout_ms: job.ackTimeoutMs,
  attempts_max: job.attemptsMax,
  retry: job.retry && {
    backoff_ms: job.retry.backOffMs,
    backoff_max_ms: job.retry.backOffMaxMs,
    factor: job.retry.factor,
  },
});

/** The job of a row, or the error it ends with because the row cannot be read. */
export function jobOfRow(
  row: RowHead & { payload: string },
  defaults: RowDefaults,
): NewJob | JobError {
  const spec = RowSpec.safeParse(row.spec);
  const words = RowWords.safeParse({
    request_id: row.requestId,
    tenant: row.tenant,
    pool: row.pool,
    priority: row.priority,
  });
  const issue = spec.error?.issues[0] ?? words.error?.issues[0];
  const isJson = issue === undefined && isJsonText(row.payload);
  if (!spec.success || !words.success || !isJson) {
    const reason = issue ? `${issue.path.join(".")}: ${issue.message}` : "payload: not JSON";
    const { code, message } = new TenureError("INVALID_REQUEST", { reason });
    return { code, message: cutText(message, 4_096) };
  }
  return { ...specOf(row, spec.data, defaults), payload: row.payload };
}

/** The record of a job that the hot store does not have, from its row. */
export function recordOfRow(row: WholeRow, defaults: RowDefaults): JobRecord {
  const spec = RowSpec.safeParse(row.spec);
  const isEnded = row.state === "ended";
  const createdMs = row.createdAt.getTime();
  const stateMs = row.endedAt?.getTime() ?? createdMs;
  return {
    ...specOf(row, spec.success ? spec.data : {}, defaults),
    state: isEnded ? "RELEASED" : "CREATED",
    attemptId: row.attemptId,
    nodeId: undefined,
    endedBy: isEnded ? "result" : undefined,
    outcome: isEnded ? (row.outcome ?? "failed") : undefined,
    countedAttempts: row.countedAttempts,
    createdMs,
    attemptMs: createdMs,
    stateMs,
    persisted: true,
    listeners: [],
    isSuspect: false,
    avoid: [],
    payload: row.payload,
    result: isEnded ? resultText({ body: row.result, error: errorOf(row.error) }) : undefined,
    timeline: [],
  };
}

const RowError = z.object({ code: z.string(), message: z.string() });

const errorOf = (error: unknown): JobError | undefined => RowError.safeParse(error).data;

function specOf(
  row: RowHead,
  spec: z.infer<typeof RowSpec>,
  defaults: RowDefaults,
): Omit<NewJob, "payload"> {
  return {
    jobId: row.jobId,
    tenant: row.tenant,
    token: spec.token,
    requestId: row.requestId,
    bodyHash: /^\S{1,128}$/.test(row.bodyHash) ? row.bodyHash : NO_HASH,
    pool: row.pool,
    service: spec.service,
    priority: row.priority,
    traceId: spec.trace_id,
    sessionId: spec.session_id,
    turn: spec.turn ?? false,
    finalize: spec.finalize,
    originInstanceId: spec.origin ?? defaults.instanceId,
    pendingTimeoutMs: spec.pending_ms ?? NO_LIMIT_MS,
    ackTimeoutMs: spec.ack_timeout_ms ?? defaults.ackTimeoutMs,
    runTimeoutMs: spec.timeout_ms ?? defaults.runTimeoutMs,
    attemptsMax: spec.retry?.attempts ?? spec.attempts_max ?? defaults.attemptsMax,
    retry: retryPausesOf(spec.retry),
    durable: true,
  };
}

function isJsonText(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
