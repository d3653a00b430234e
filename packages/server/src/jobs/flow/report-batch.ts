import { type JobError, type JobOutcome, type NodeJobError, TenureError } from "@tenure/protocol";
import type { NodeMessage, ResultReport } from "../api/raw-json.ts";
import type { NodeConnection } from "../memory/connections.ts";
import type { ReportKind } from "../metrics.ts";
import type { JobStep } from "../policy/job-table.ts";
import type { RetryReason } from "../policy/retry-policy.ts";
import type { WrittenWithEnd } from "./step.ts";

export type NodeReport = Extract<
  NodeMessage,
  { type: "job_ack" | "job_started" | "job_progress" | "job_result" }
>;

/** The reports of one node about one attempt that are written together. */
export interface ReportBatch {
  node: NodeConnection;
  jobId: string;
  attemptId: number;
  kinds: ReportKind[];
  steps: JobStep[];
  /** The newest bodies, as JSON; older ones are dropped while the store is down. */
  progress: string[];
  progressLength: number;
  /** The end of the job by the node's result. */
  end: BatchEnd | undefined;
  failure: { reason: RetryReason; error: NodeJobError } | undefined;
  /** What was started together with the end of the job. */
  written: WrittenWithEnd | undefined;
}

export interface BatchEnd {
  outcome: JobOutcome;
  /** JSON text. */
  body?: string | undefined;
  error?: JobError | undefined;
}

/** Progress of one attempt that is kept until the store answers. */
const PROGRESS_MAX = 64;
const PROGRESS_LENGTH_MAX = 262_144;

export const openBatch = (node: NodeConnection, report: NodeReport): ReportBatch => ({
  node,
  jobId: report.job_id,
  attemptId: report.attempt_id,
  kinds: [],
  steps: [],
  progress: [],
  progressLength: 0,
  end: undefined,
  failure: undefined,
  written: undefined,
});

/** Adds a report. Ignored after a result: the end of an attempt is its last step. */
export function addReport(batch: ReportBatch, report: NodeReport, resultBytesMax: number): void {
  if (batch.end || batch.failure) return;
  switch (report.type) {
    case "job_ack":
      addStep(batch, "ack", { event: "ack" });
      break;
    case "job_started":
      addImplied(batch, { ...report, started_ms_ago: undefined });
      addStep(batch, "started", { event: "started", agoMs: report.started_ms_ago });
      break;
    case "job_progress":
      addProgress(batch, report.body.text);
      break;
    case "job_result":
      addImplied(batch, report);
      addResult(batch, report, resultBytesMax);
  }
}

function addStep(batch: ReportBatch, kind: ReportKind, step: JobStep): void {
  batch.kinds.push(kind);
  batch.steps.push(step);
}

/** The acknowledgement and the start of a node that defers them, if the report carries their times. */
function addImplied(
  batch: ReportBatch,
  report: Pick<ResultReport, "accepted_ms_ago" | "started_ms_ago">,
): void {
  const { accepted_ms_ago, started_ms_ago } = report;
  if (accepted_ms_ago !== undefined)
    addStep(batch, "ack", { event: "ack", agoMs: accepted_ms_ago });
  if (started_ms_ago !== undefined)
    addStep(batch, "started", { event: "started", agoMs: started_ms_ago });
}

/** Any number of progress reports is one step of the record. */
function addProgress(batch: ReportBatch, body: string): void {
  const { progress } = batch;
  progress.push(body);
  batch.progressLength += body.length;
  const isTooMuch = () =>
    progress.length > PROGRESS_MAX || batch.progressLength > PROGRESS_LENGTH_MAX;
  while (progress.length > 1 && isTooMuch()) batch.progressLength -= progress.shift()!.length;
  if (!batch.kinds.includes("progress")) addStep(batch, "progress", { event: "started" });
}

function addResult(batch: ReportBatch, report: ResultReport, bytesMax: number): void {
  const error = errorOf(report);
  const reason = error && retryReasonOf(error);
  if (error && reason) {
    batch.kinds.push("result");
    batch.failure = { reason, error };
    return;
  }
  const end = endOf(report, error, bytesMax);
  batch.end = end;
  addStep(batch, "result", { event: "result", outcome: end.outcome, reason: end.error?.code });
}

const errorOf = ({ success, error }: ResultReport): NodeJobError | undefined =>
  success ? undefined : (error ?? { code: "FAILED", message: "the node gave no reason" });

/** Whether the node's error allows a retry on another node, and the reason of it. */
function retryReasonOf({ code, retryable }: NodeJobError): RetryReason | undefined {
  if (code === "MODEL_NOT_AVAILABLE") return "model_not_available";
  if (code === "NODE_DRAINING") return "node_draining";
  return retryable ? "failed" : undefined;
}

function endOf(report: ResultReport, error: NodeJobError | undefined, bytesMax: number) {
  const body = report.body?.text;
  if (body !== undefined && isLarger(body, bytesMax)) {
    const { code, message } = tooLarge(bytesMax);
    const tooLargeResult = { code, message: `the result is ${message}` };
    return { outcome: "failed", error: tooLargeResult, body: undefined } as const;
  }
  return { outcome: error ? "failed" : "succeeded", error, body } as const;
}

export const isLarger = (text: string, bytesMax: number): boolean =>
  text.length * 3 > bytesMax && Buffer.byteLength(text) > bytesMax;

export const tooLarge = (bytesMax: number): TenureError =>
  new TenureError("PAYLOAD_TOO_LARGE", { limit_bytes: bytesMax });
