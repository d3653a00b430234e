import * as z from "zod";
import {
  DeploymentCreate,
  DeploymentPatch,
  DeploymentRevision,
  DeploymentType,
  DeploymentView,
  DeploymentWhy,
  FenceCheck,
} from "../deployment.ts";
import { Generation, SmallCount, text } from "../formats.ts";
import {
  API_PREFIX,
  JSON_TYPE,
  ListQuery,
  listOf,
  QueryFlag,
  queryInt,
  type Route,
  SSE_TYPE,
} from "../http.ts";
import { LOG_LINES_DEFAULT, LogFile, LogLineCount, LogPage, LogPosition } from "../log-lines.ts";

const PATH = `${API_PREFIX}/deployments`;

/** A deployment's id or its name. */
const params = z.object({ id: text(128).min(1) });

export const DEPLOYMENT_ROUTES = {
  listDeployments: {
    method: "GET",
    path: PATH,
    roles: ["admin", "viewer"],
    summary: "List deployments with their status on each node.",
    query: ListQuery.extend({
      type: DeploymentType.optional(),
      enabled: QueryFlag.optional(),
      address: text(128).optional(),
    }),
    reply: listOf(DeploymentView),
  },
  createDeployment: {
    method: "POST",
    path: PATH,
    roles: ["admin"],
    summary: "Create a deployment.",
    body: DeploymentCreate,
    once: "name",
    reply: DeploymentView,
    statuses: [201],
  },
  readDeployment: {
    method: "GET",
    path: `${PATH}/:id`,
    roles: ["admin", "viewer"],
    summary: "Read one deployment.",
    params,
    reply: DeploymentView,
  },
  updateDeployment: {
    method: "PATCH",
    path: `${PATH}/:id`,
    roles: ["admin"],
    summary: "Change its specification; with if_revision only if it is unchanged since.",
    params,
    body: DeploymentPatch,
    reply: DeploymentView,
  },
  deleteDeployment: {
    method: "DELETE",
    path: `${PATH}/:id`,
    roles: ["admin"],
    summary: "Delete a deployment; its node stops it.",
    params,
    statuses: [204],
  },
  restartDeployment: {
    method: "POST",
    path: `${PATH}/:id/restart`,
    // `peer`: the node that runs it may be connected to another instance.
    roles: ["admin", "peer"],
    summary: "Restart it where it runs.",
    params,
    reply: DeploymentView,
  },
  rollbackDeployment: {
    method: "POST",
    path: `${PATH}/:id/rollback`,
    roles: ["admin"],
    summary: "Roll back to a former specification, by default the last one.",
    params,
    body: z.object({ revision: SmallCount.optional() }).prefault({}),
    reply: DeploymentView,
  },
  listRevisions: {
    method: "GET",
    path: `${PATH}/:id/revisions`,
    roles: ["admin", "viewer"],
    summary: "List its former specifications, newest first.",
    params,
    query: ListQuery,
    reply: listOf(DeploymentRevision),
  },
  explainDeployment: {
    method: "GET",
    path: `${PATH}/:id/why`,
    roles: ["admin", "viewer"],
    summary: "Explain why it is unassigned or not running.",
    params,
    reply: DeploymentWhy,
  },
  checkFence: {
    method: "GET",
    path: `${PATH}/:id/fence`,
    roles: ["admin", "viewer", "node", "child"],
    summary: "Check whether a generation is still current.",
    params,
    query: z.object({ generation: queryInt(Generation) }),
    reply: FenceCheck,
  },
  readLogs: {
    method: "GET",
    path: `${PATH}/:id/logs`,
    roles: ["admin", "viewer", "peer"],
    summary: "Read its log from the node that ran it, or follow it as server-sent events.",
    params,
    query: z.object({
      follow: QueryFlag.optional(),
      lines: queryInt(LogLineCount.default(LOG_LINES_DEFAULT)),
      node: text(128).optional(),
      file: queryInt(LogFile).optional(),
      from: LogPosition.optional(),
    }),
    reply: LogPage,
    produces: [JSON_TYPE, SSE_TYPE],
  },
} as const satisfies Record<string, Route>;
