import {
  context as otel,
  ProxyTracerProvider,
  type Span,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";
import type { Log } from "../../kernel/log.ts";
import type { JobEnd, TrackedJob } from "../job.ts";

/** Spans of jobs and attempts, if an OpenTelemetry SDK was registered before the server started. */
export interface JobTracing {
  jobBegun(job: TrackedJob): void;
  attemptBegun(job: TrackedJob): void;
  attemptEnded(job: TrackedJob, reason: string): void;
  jobEnded(job: TrackedJob, end: Pick<JobEnd, "outcome">): void;
  /** Another instance tracks the job: the span covers the part until then. */
  jobLeft(job: TrackedJob): void;
}

const OFF: JobTracing = {
  jobBegun() {},
  attemptBegun() {},
  attemptEnded() {},
  jobEnded() {},
  jobLeft() {},
};

/** Without an SDK nothing is recorded and nothing is spent. Checked once, at the start, and logged. */
export function createTracing(log: Log): JobTracing {
  if (!hasSdk()) {
    log.info({ event: "tracing.off", reason: whyOff() }, "jobs are not traced");
    return OFF;
  }
  log.info({ event: "tracing.on" }, "jobs are traced: an OpenTelemetry SDK is registered");
  const tracer = trace.getTracer("tenure");
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

/** Whether a provider is registered that this copy of the API can use. A span is no test: it may be sampled out. */
function hasSdk(): boolean {
  const provider = trace.getTracerProvider();
  const none = new ProxyTracerProvider().getDelegate();
  return !(provider instanceof ProxyTracerProvider) || provider.getDelegate() !== none;
}

/** An SDK that registered with an older copy of the API than ours is invisible to it. */
function whyOff(): string {
  const registered = (globalThis as Record<symbol, { version?: string; trace?: unknown }>)[
    Symbol.for("opentelemetry.js.api.1")
  ];
  return registered?.trace === undefined
    ? "no OpenTelemetry SDK is registered"
    : `an OpenTelemetry SDK is registered with another copy of @opentelemetry/api (${registered.version}), older than the one used here; install one version for both`;
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
