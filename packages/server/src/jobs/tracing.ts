import { context as otel, type Span, SpanStatusCode, trace } from "@opentelemetry/api";
import type { LiveJob } from "./live-job.ts";
import type { JobEnd } from "./wire.ts";

/** Spans of jobs and of their attempts, for whoever registered an OpenTelemetry SDK before the server started. */
export interface JobTracing {
  jobBegun(job: LiveJob): void;
  attemptBegun(job: LiveJob): void;
  attemptEnded(job: LiveJob, reason: string): void;
  jobEnded(job: LiveJob, end: JobEnd): void;
  /** It is in another instance's hands: the span here tells of the part that was ours. */
  jobLeft(job: LiveJob): void;
}

const OFF: JobTracing = {
  jobBegun() {},
  attemptBegun() {},
  attemptEnded() {},
  jobEnded() {},
  jobLeft() {},
};

/** Without an SDK nothing is recorded, and nothing is spent on it: one question at the start. */
export function createTracing(): JobTracing {
  const tracer = trace.getTracer("tenure");
  const probe = tracer.startSpan("tenure.start");
  const isOn = probe.isRecording();
  probe.end();
  if (!isOn) return OFF;
  const spans = new Map<string, { job: Span; attempt: Span | undefined }>();

  function endAttempt(jobId: string, status?: string): void {
    const held = spans.get(jobId);
    if (status) held?.attempt?.setStatus({ code: SpanStatusCode.ERROR, message: status });
    held?.attempt?.end();
    if (held) held.attempt = undefined;
  }

  return {
    jobBegun(job) {
      const { jobId, pool, tenant, requestId, sessionId } = job;
      const attributes = {
        "tenure.job_id": jobId,
        "tenure.pool": pool,
        "tenure.tenant": tenant,
        "tenure.request_id": requestId,
        ...(sessionId && { "tenure.session_id": sessionId }),
      };
      const span = tracer.startSpan("tenure.job", { attributes }, parentOf(job.traceId));
      spans.set(jobId, { job: span, attempt: undefined });
    },
    attemptBegun({ jobId, attemptId, nodeId }) {
      const held = spans.get(jobId);
      if (!held) return;
      endAttempt(jobId);
      const attributes = { "tenure.attempt_id": attemptId, "tenure.node_id": nodeId ?? "" };
      const parent = trace.setSpan(otel.active(), held.job);
      held.attempt = tracer.startSpan("tenure.attempt", { attributes }, parent);
    },
    attemptEnded: ({ jobId }, reason) => endAttempt(jobId, reason),
    jobEnded({ jobId }, { outcome }) {
      const failed = outcome === "succeeded" ? undefined : outcome;
      endAttempt(jobId, failed);
      const span = spans.get(jobId)?.job;
      span?.setAttribute("tenure.outcome", outcome);
      if (failed) span?.setStatus({ code: SpanStatusCode.ERROR, message: failed });
      span?.end();
      spans.delete(jobId);
    },
    jobLeft({ jobId }) {
      endAttempt(jobId);
      spans.get(jobId)?.job.end();
      spans.delete(jobId);
    },
  };
}

/** A `trace_id` in W3C's form (`00-<trace>-<span>-<flags>`) makes the job a part of that trace. */
function parentOf(traceId: string | undefined) {
  const parts = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(traceId ?? "");
  if (!parts) return otel.active();
  const [, trace_id = "", spanId = "", flags = "01"] = parts;
  const parent = {
    traceId: trace_id,
    spanId,
    traceFlags: Number.parseInt(flags, 16),
    isRemote: true,
  };
  return trace.setSpanContext(otel.active(), parent);
}
