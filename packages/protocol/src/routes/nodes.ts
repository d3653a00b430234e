import * as z from "zod";
import { text } from "../formats.ts";
import { API_PREFIX, ListQuery, listOf, QueryFlag, type Route } from "../http.ts";
import { MembershipView, NodeView } from "../node.ts";

const PATH = `${API_PREFIX}/nodes`;

/** A node's address or its name. */
const params = z.object({ id: text(128).min(1) });

export const NODE_ROUTES = {
  listNodes: {
    method: "GET",
    path: PATH,
    roles: ["admin", "viewer"],
    summary: "List nodes, including disconnected ones.",
    query: ListQuery.extend({ online: QueryFlag.optional(), node_unit: QueryFlag.optional() }),
    reply: listOf(NodeView),
  },
  readNode: {
    method: "GET",
    path: `${PATH}/:id`,
    roles: ["admin", "viewer"],
    summary: "Read one node.",
    params,
    reply: NodeView,
  },
  removeNode: {
    method: "DELETE",
    path: `${PATH}/:id`,
    roles: ["admin"],
    summary: "Forget a disconnected node-unit; 409 while it drains or a deployment names it.",
    params,
    statuses: [204],
  },
  drainNode: {
    method: "POST",
    path: `${PATH}/:id/drain`,
    roles: ["admin"],
    summary: "Drain it: assign nothing new, and move its deployments.",
    params,
    reply: NodeView,
  },
  resumeNode: {
    method: "POST",
    path: `${PATH}/:id/resume`,
    roles: ["admin"],
    summary: "End a drain.",
    params,
    reply: NodeView,
  },
  readMembership: {
    method: "GET",
    path: `${API_PREFIX}/membership`,
    roles: ["admin", "viewer"],
    summary: "Read the members view and the mass-loss brake.",
    reply: MembershipView,
  },
  releaseBrake: {
    method: "POST",
    path: `${API_PREFIX}/membership/release`,
    roles: ["admin"],
    summary: "Release the mass-loss brake.",
    reply: MembershipView,
  },
} as const satisfies Record<string, Route>;
