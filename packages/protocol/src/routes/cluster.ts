import * as z from "zod";
import {
  AuditRecord,
  ClusterView,
  DlqEntry,
  DlqId,
  EventRecord,
  HealthLive,
  HealthReady,
  Login,
  Principal,
  Stats,
  StreamItem,
} from "../cluster.ts";
import { InstanceId, text } from "../formats.ts";
import { API_PREFIX, ListQuery, listOf, METRICS_TYPE, type Route, SSE_TYPE } from "../http.ts";

const dlqParams = z.object({ id: DlqId });

export const CLUSTER_ROUTES = {
  readCluster: {
    method: "GET",
    path: `${API_PREFIX}/cluster`,
    roles: ["admin", "viewer"],
    summary: "Read the instances and the health of their stores.",
    reply: ClusterView,
  },
  confirmTimeline: {
    method: "POST",
    path: `${API_PREFIX}/cluster/confirm-timeline`,
    roles: ["admin"],
    summary: "Accept a Postgres that was restored to another history, and resume allocation.",
    reply: ClusterView,
  },
  listDlq: {
    method: "GET",
    path: `${API_PREFIX}/dlq`,
    roles: ["admin", "viewer"],
    summary: "List dead letters.",
    query: ListQuery.extend({ instance_id: InstanceId.optional() }),
    reply: listOf(DlqEntry),
  },
  redriveDlq: {
    method: "POST",
    path: `${API_PREFIX}/dlq/:id/redrive`,
    roles: ["admin"],
    summary: "Resend a dead letter with a new deadline; returns the inbox.",
    params: dlqParams,
    reply: z.object({ id: DlqId, instance_id: InstanceId }),
  },
  discardDlq: {
    method: "DELETE",
    path: `${API_PREFIX}/dlq/:id`,
    roles: ["admin"],
    summary: "Discard a dead letter.",
    params: dlqParams,
    statuses: [204],
  },
  listEvents: {
    method: "GET",
    path: `${API_PREFIX}/events`,
    roles: ["admin", "viewer"],
    summary: "List events, newest first.",
    query: ListQuery.extend({
      event: text(128).optional(),
      code: text(128).optional(),
      subject: text(200).optional(),
    }),
    reply: listOf(EventRecord),
  },
  listAudit: {
    method: "GET",
    path: `${API_PREFIX}/audit`,
    roles: ["admin"],
    summary: "List audited actions, newest first.",
    query: ListQuery.extend({
      action: text(128).optional(),
      actor: text(128).optional(),
      subject: text(200).optional(),
      tenant: text(128).optional(),
    }),
    reply: listOf(AuditRecord),
  },
  readStats: {
    method: "GET",
    path: `${API_PREFIX}/stats`,
    roles: ["admin", "viewer"],
    summary: "Read the statistics of the overview.",
    reply: Stats,
  },
  openStream: {
    method: "GET",
    path: `${API_PREFIX}/stream`,
    roles: ["admin", "viewer"],
    summary: "Follow every change as server-sent events.",
    reply: StreamItem,
    produces: [SSE_TYPE],
  },
} as const satisfies Record<string, Route>;

export const ACCESS_ROUTES = {
  login: {
    method: "POST",
    path: `${API_PREFIX}/login`,
    roles: "public",
    summary: "Sign in: exchange a token for a cookie.",
    body: Login,
    reply: Principal,
  },
  logout: {
    method: "POST",
    path: `${API_PREFIX}/logout`,
    roles: ["admin", "viewer"],
    summary: "Sign out: end the cookie.",
    statuses: [204],
  },
  readPrincipal: {
    method: "GET",
    path: `${API_PREFIX}/me`,
    roles: ["admin", "viewer"],
    summary: "Read the identity of the caller.",
    reply: Principal,
  },
} as const satisfies Record<string, Route>;

/** Outside `/api/v1`, where load balancers and scrapers look for them. */
export const OUTER_ROUTES = {
  healthLive: {
    method: "GET",
    path: "/health/live",
    roles: "public",
    summary: "Check that the process answers.",
    reply: HealthLive,
  },
  healthReady: {
    method: "GET",
    path: "/health/ready",
    roles: "public",
    summary: "Check the stores; 503 names the one that does not answer.",
    reply: HealthReady,
    statuses: [200, 503],
  },
  readMetrics: {
    method: "GET",
    path: "/metrics",
    roles: ["admin", "viewer"],
    summary: "Read the metrics in Prometheus format.",
    reply: z.string(),
    produces: [METRICS_TYPE],
  },
  readOpenapi: {
    method: "GET",
    path: "/openapi.json",
    roles: "public",
    summary: "Read the description of this API.",
    reply: z.record(z.string(), z.unknown()),
  },
} as const satisfies Record<string, Route>;
