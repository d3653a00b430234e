import {
  ANY_TENANT,
  type Job,
  type JobOutcome,
  type JobState,
  type List,
  serves,
  TenureError,
} from "@tenure/protocol";
import type { HotStore } from "../../store/hot-store.ts";
import { evictedError, type JobRecord, resultText } from "../job.ts";
import type { DurableJobs } from "../rows/durable-jobs.ts";
import { readBinding } from "../store/binding-store.ts";
import { readJob } from "../store/job-store.ts";
import { listRecent } from "../store/recent-store.ts";
import { withMembers } from "./frames.ts";

export interface JobFilter {
  /** `*` = all. */
  tenant: string;
  /** Only what the token of this name submitted. */
  token?: string | undefined;
  state?: JobState | undefined;
  outcome?: JobOutcome | undefined;
  pool?: string | undefined;
  request_id?: string | undefined;
  session_id?: string | undefined;
  limit: number;
  cursor?: string | undefined;
}

/** Pages of ids that are read for one page of a filtered list. */
const ROUNDS_MAX = 10;

/** Reads jobs for HTTP callers. */
export function createJobQueries(hot: HotStore, durable: Pick<DurableJobs, "recordFromRow">) {
  /** A job of another tenant or token is not found. */
  async function find(jobId: string, tenant: string, token?: string): Promise<JobRecord> {
    const record =
      (await readJob(hot, jobId, { result: true, timeline: true })) ??
      (await durable.recordFromRow(jobId));
    if (!record || !serves([tenant], record.tenant)) throw noJob(jobId);
    if (token !== undefined && record.token !== token) throw noJob(jobId);
    return record;
  }

  async function list(filter: JobFilter): Promise<List<Job>> {
    if (filter.request_id !== undefined) return listRequest(filter.request_id, filter);
    const tenant = filter.tenant === ANY_TENANT ? undefined : filter.tenant;
    const items: Job[] = [];
    let before = parseCursor(filter.cursor);
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const jobIds = await listRecent(hot, { tenant, limit: filter.limit, before });
      const records = await Promise.all(
        jobIds.map((jobId) => readJob(hot, jobId, { failure: true })),
      );
      for (const [at, record] of records.entries()) {
        before = jobIds[at];
        if (record && fits(record, filter)) items.push(renderItem(record));
        if (items.length === filter.limit) return { items, next_cursor: before ?? null };
      }
      if (jobIds.length < filter.limit) return { items, next_cursor: null };
    }
    return { items, next_cursor: before ?? null };
  }

  async function listRequest(requestId: string, filter: JobFilter): Promise<List<Job>> {
    if (filter.tenant === ANY_TENANT)
      throw new TenureError("INVALID_REQUEST", { reason: "tenant: required with request_id" });
    const bound = await readBinding(hot, { tenant: filter.tenant, requestId });
    const record = bound && (await readJob(hot, bound.jobId, { failure: true }));
    const items = record && fits(record, filter) ? [renderItem(record)] : [];
    return { items, next_cursor: null };
  }

  return {
    find,
    list,
    read: async (jobId: string, tenant: string, token?: string) =>
      jobText(await find(jobId, tenant, token)),
  };
}

const fits = (record: JobRecord, filter: JobFilter): boolean =>
  (filter.token === undefined || record.token === filter.token) &&
  (filter.state === undefined || record.state === filter.state) &&
  (filter.outcome === undefined || record.outcome === filter.outcome) &&
  (filter.pool === undefined || record.pool === filter.pool) &&
  (filter.session_id === undefined || record.sessionId === filter.session_id);

export const noJob = (jobId: string): TenureError =>
  new TenureError("NOT_FOUND", { what: "job", id: jobId });

/** `record` was read with its result. The result of an ended job without one was evicted. */
export function renderJob(record: JobRecord): Job {
  const { body, error }: Pick<Job, "body" | "error"> =
    record.outcome && record.result === undefined
      ? { error: evictedError(record.jobId, record.outcome) }
      : JSON.parse(record.result ?? "{}");
  return {
    ...fieldsOf(record, record.timeline),
    ...(body !== undefined && { body }),
    ...(error && { error }),
  };
}

/** The same as JSON, with the result as the text the node sent. */
export const jobText = (record: JobRecord): string =>
  withMembers(
    JSON.stringify(fieldsOf(record, record.timeline)),
    record.result ?? withoutResult(record),
  );

const withoutResult = ({ jobId, outcome }: JobRecord): string =>
  resultText({ error: outcome && evictedError(jobId, outcome) });

/** A job in a list, read with `failure`: without its body and its timeline, which may be 300 kB. */
function renderItem(record: JobRecord): Job {
  const { error } = JSON.parse(record.result ?? "{}") as Pick<Job, "error">;
  return { ...fieldsOf(record, []), ...(error && { error }) };
}

function fieldsOf(record: JobRecord, timeline: Job["timeline"]): Omit<Job, "body" | "error"> {
  return {
    job_id: record.jobId,
    request_id: record.requestId,
    pool: record.pool,
    state: record.state,
    attempt_id: record.attemptId,
    ...(record.nodeId && { node_id: record.nodeId }),
    ...(record.outcome && { outcome: record.outcome }),
    created_at: new Date(record.createdMs).toISOString(),
    ...(record.outcome && { ended_at: new Date(record.stateMs).toISOString() }),
    timeline,
    ...(record.sessionId && { session_id: record.sessionId }),
    ...(record.turnId && { turn_id: record.turnId }),
    ...(record.affinity && { affinity: record.affinity }),
    ...(record.service && { service: record.service }),
    priority: record.priority,
    ...(record.traceId && { trace_id: record.traceId }),
  };
}

function parseCursor(cursor: string | undefined): string | undefined {
  if (cursor === undefined || /^[0-9a-f-]{36}$/.test(cursor)) return cursor;
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: invalid" });
}
