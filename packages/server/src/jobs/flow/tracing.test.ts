import {
  type Attributes,
  type Span,
  type SpanContext,
  SpanStatusCode,
  type Tracer,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type JobFleet, openJobFleet } from "../../../testing/job-fleet.ts";
import type { App } from "../../app.ts";

interface Recorded {
  name: string;
  attributes: Attributes;
  parentSpanId: string | undefined;
  traceId: string;
  spanId: string;
  error: string | undefined;
  ended: number;
}

const spans: Recorded[] = [];

/** The part of an SDK that records the calls of the API. */
const provider: TracerProvider = {
  getTracer: () =>
    ({
      startSpan(name, options = {}, context) {
        const parent = context && trace.getSpanContext(context);
        const recorded: Recorded = {
          name,
          attributes: { ...options.attributes },
          parentSpanId: parent?.spanId,
          traceId: parent?.traceId ?? hex(32),
          spanId: hex(16),
          error: undefined,
          ended: 0,
        };
        spans.push(recorded);
        return spanOf(recorded);
      },
    }) as Tracer,
};

let digits = 0;
const hex = (length: number): string => (++digits).toString(16).padStart(length, "0");

function spanOf(recorded: Recorded): Span {
  const { traceId, spanId } = recorded;
  const context: SpanContext = { traceId, spanId, traceFlags: 1 };
  return {
    spanContext: () => context,
    isRecording: () => true,
    setAttribute(key: string, value: string) {
      recorded.attributes[key] = value;
      return this;
    },
    setStatus({ code, message }: { code: SpanStatusCode; message?: string }) {
      if (code === SpanStatusCode.ERROR) recorded.error = message;
      return this;
    },
    end() {
      recorded.ended += 1;
    },
  } as Span;
}

let fleet: JobFleet;
let a: App;

beforeAll(async () => {
  // Before the server starts: it checks once whether an SDK records.
  trace.setGlobalTracerProvider(provider);
  fleet = await openJobFleet("memory");
  a = fleet.apps[0]!;
});
afterAll(async () => {
  await fleet.stop();
  trace.disable();
});

const spansOf = async (jobId: string) => {
  const job = await until(
    () => spans.find(({ attributes, ended }) => attributes["tenure.job_id"] === jobId && ended > 0),
    { what: "the end of the job's span" },
  );
  return { job, attempts: spans.filter(({ parentSpanId }) => parentSpanId === job.spanId) };
};

test.each([
  ["the caller's span", `00-${"12".repeat(16)}-${"34".repeat(8)}-01`, "34".repeat(8)],
  [
    "a later version of the header",
    `01-${"12".repeat(16)}-${"34".repeat(8)}-01-new`,
    "34".repeat(8),
  ],
  ["more than version 00 has", `00-${"12".repeat(16)}-${"34".repeat(8)}-01-new`, undefined],
  ["an empty trace", `00-${"00".repeat(16)}-${"34".repeat(8)}-01`, undefined],
  ["no span at all", "from here", undefined],
])("POST /jobs with the header traceparent: %s", async (_, traceparent, parentSpanId) => {
  const response = await fetch(`${a.url}/api/v1/jobs`, {
    method: "POST",
    headers: { "content-type": "application/json", traceparent },
    body: JSON.stringify({ request_id: crypto.randomUUID(), pool: "nowhere", payload: 1 }),
  });
  expect(response.status).toBe(202);
  const { job_id } = (await response.json()) as { job_id: string };
  const span = await until(
    () => spans.find(({ attributes }) => attributes["tenure.job_id"] === job_id),
    { what: "the job's span" },
  );
  expect(span.parentSpanId).toBe(parentSpanId);
});

test("a job is a span, with one for each of its attempts, in the trace it was submitted with", async () => {
  const nodes = [await fleet.node(a), await fleet.node(a)];
  const client = await fleet.session(a);
  const traceparent = `00-${"ab".repeat(16)}-${"cd".repeat(8)}-01`;
  const request = client.submit({ trace_id: traceparent });
  const { job_id } = await client.accepted(request);
  const assignedTo = (nth: number) =>
    until(() => nodes.find((node) => node.assignments(job_id).at(-1)?.attempt_id === nth), {
      what: `attempt ${nth}`,
    });
  const first = await assignedTo(1);
  const assignment = first.assignments(job_id)[0]!;
  expect(assignment.trace_id).toBe(traceparent);
  const error = { code: "BUSY", message: "not now", retryable: true };
  first.finish(assignment, { success: false, error });
  const second = await assignedTo(2);
  second.finish(second.assignments(job_id).at(-1)!);
  expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded" });

  const { job, attempts } = await spansOf(job_id);
  expect(job).toMatchObject({
    name: "tenure.job",
    traceId: "ab".repeat(16),
    parentSpanId: "cd".repeat(8),
    attributes: {
      "tenure.job_id": job_id,
      "tenure.pool": fleet.pool,
      "tenure.tenant": "default",
      "tenure.request_id": request.request_id,
      "tenure.session_id": client.sessionId,
      "tenure.outcome": "succeeded",
    },
    error: undefined,
    ended: 1,
  });
  expect(attempts).toMatchObject([
    {
      name: "tenure.attempt",
      traceId: "ab".repeat(16),
      attributes: { "tenure.attempt_id": 1, "tenure.node_id": first.key.address },
      error: "failed",
      ended: 1,
    },
    {
      name: "tenure.attempt",
      attributes: { "tenure.attempt_id": 2, "tenure.node_id": second.key.address },
      error: undefined,
      ended: 1,
    },
  ]);
  await fleet.rest();
});

test("the span of a job that does not succeed has an error status; a job without a trace begins its own", async () => {
  const client = await fleet.session(a);
  const { job_id } = await client.accepted(client.submit({ trace_id: "not-a-traceparent" }));
  client.send({ type: "job_cancel", job_id });
  expect(await client.result({ job_id })).toMatchObject({ outcome: "cancelled" });
  const { job, attempts } = await spansOf(job_id);
  expect(job).toMatchObject({ parentSpanId: undefined, error: "cancelled", ended: 1 });
  expect(job.attributes["tenure.outcome"]).toBe("cancelled");
  expect(attempts).toEqual([]);
  await fleet.rest();
});
