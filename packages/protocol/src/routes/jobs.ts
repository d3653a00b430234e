import * as z from "zod";
import { JobId, Pool, RequestId, SessionId, TurnId } from "../formats.ts";
import { API_PREFIX, ListQuery, listOf, QueryFlag, queryInt, type Route } from "../http.ts";
import { Job, JobOutcome, JobSpec, JobState, JobWaitMs } from "../job.ts";
import { SessionView, TurnView } from "../session.ts";

const PATH = `${API_PREFIX}/jobs`;
const params = z.object({ id: JobId });

// The server limits a `session` token to its own sessions and their jobs and turns.
export const JOB_ROUTES = {
  submitJob: {
    method: "POST",
    path: PATH,
    roles: ["admin", "session", "child"],
    summary: "Submit a job; 200 when it ended within wait_ms, else 202.",
    query: z.object({ wait_ms: queryInt(JobWaitMs).optional() }),
    body: JobSpec,
    once: "request_id",
    reply: Job,
    statuses: [200, 202],
  },
  listJobs: {
    method: "GET",
    path: PATH,
    roles: ["admin", "viewer", "session"],
    summary: "List recent jobs, newest first, without `body` and with an empty `timeline`.",
    query: ListQuery.extend({
      state: JobState.optional(),
      outcome: JobOutcome.optional(),
      pool: Pool.optional(),
      request_id: RequestId.optional(),
      session_id: SessionId.optional(),
    }),
    reply: listOf(Job),
  },
  readJob: {
    method: "GET",
    path: `${PATH}/:id`,
    roles: ["admin", "viewer", "session", "child"],
    summary: "Read one job with its timeline.",
    params,
    reply: Job,
  },
  cancelJob: {
    method: "POST",
    path: `${PATH}/:id/cancel`,
    roles: ["admin", "session"],
    summary: "Cancel a job; one that has ended is unchanged.",
    params,
    reply: Job,
  },
  listSessions: {
    method: "GET",
    path: `${API_PREFIX}/sessions`,
    roles: ["admin", "viewer", "session"],
    summary: "List sessions.",
    query: ListQuery.extend({ online: QueryFlag.optional() }),
    reply: listOf(SessionView),
  },
  readTurn: {
    method: "GET",
    path: `${API_PREFIX}/turns/:id`,
    roles: ["admin", "viewer", "session"],
    summary: "Read one turn and the node its jobs go to.",
    params: z.object({ id: TurnId }),
    reply: TurnView,
  },
} as const satisfies Record<string, Route>;
