import * as z from "zod";
import { DeploymentReport, ListedDeployment } from "./deployment.ts";
import { ErrorInfo } from "./error-body.ts";
import {
  ClientId,
  Count,
  DeploymentId,
  DurationMs,
  Generation,
  NodeId,
  Timestamp,
  text,
} from "./formats.ts";
import { LogFile, LogLines, LogSelection } from "./log-lines.ts";
import { Member, ResourceUsage, ViewState } from "./node.ts";

// Calls over the node's socket: a `request` with an id, answered by a `response` with the same id.
// Address and epoch of a node are those of its socket; parameters never name them.

/** Chosen by the caller, unique among its open calls on this socket, and echoed in the response. */
export const CallId = z.union([z.int().min(0), ClientId]);
export type CallId = z.infer<typeof CallId>;

/** Identifies a state of the deployment list. Only its own instance can use it; others send a full list. */
export const ListRevision = z.string().min(1).max(128);
export type ListRevision = z.infer<typeof ListRevision>;

export const CLAIM_CANDIDATES_MAX = 64;
export const RELEASE_ADDRESSES_MAX = 1_000;
export const RELEASE_ADDRESS_LENGTH_MAX = 256;

const DeploymentTerm = z.object({ id: DeploymentId, generation: Generation });
export type DeploymentTerm = z.infer<typeof DeploymentTerm>;

const SkippedDeployment = z.object({ id: DeploymentId, reason: z.string() });
export type SkippedDeployment = z.infer<typeof SkippedDeployment>;

/** Owners whose rows a node with a part of the list may request. */
export const LISTED_OWNERS_MAX = 256;

/** Free rows of one demand: the oldest, and those of the node's claim window. They replace the former ones. */
const FreeRows = z.object({
  /** A number that the instance gives to a demand. */
  demand: Count,
  /** Absent: no row is left. */
  spec: ListedDeployment.pick({
    ...{ tenant: true, selector: true, package_name: true, package_version: true, command: true },
    ...{ loader_env: true, uses_secrets: true },
  }).optional(),
  /** Id, generation, `updated_at` and `created_at` of each. */
  rows: z.array(z.tuple([DeploymentId, Generation, Timestamp, Timestamp])),
});
export type FreeRows = z.infer<typeof FreeRows>;

/** The part of the list that a node with a built-in policy needs, in place of every row. */
const ListSubset = z.object({
  /** All rows that the node has in `items`, when one of them may have left the list. */
  held: z.array(DeploymentId).optional(),
  free: z.array(FreeRows),
  /** Deployments per owner: a number that the instance gives to the owner, its count, and once its address. */
  owners: z.array(z.tuple([Count, Count]).rest(z.string())),
  /** Of those, by address, the deployments that are newer than a sample can show. */
  recent: z.record(z.string(), Count),
  /** Rows of the requested owners, and those that their owner refuses. They replace the former ones. */
  others: z.array(ListedDeployment),
});
export type ListSubset = z.infer<typeof ListSubset>;

/** Calls from a node to its server. */
export const NODE_CALLS = {
  "member.list": {
    params: z.object({
      /** `next` of the former page. */
      after: NodeId.optional(),
    }),
    result: z.object({
      seq: z.int().min(0),
      view: ViewState,
      /** In the order of addresses. */
      members: z.array(Member),
      /** There are more members: call again with this as `after`. */
      next: NodeId.optional(),
    }),
  },
  "deployment.list": {
    params: z.object({
      revision: ListRevision.optional(),
      /** With the feature `list_subset`: the node needs a part of the list, with the rows of these owners. */
      subset: z.object({ owners: z.array(text(256)).max(LISTED_OWNERS_MAX) }).optional(),
    }),
    result: z.object({
      revision: ListRevision,
      /** `delta`: `items` and `removed` are the changes since the given revision. */
      answer: z.enum(["unchanged", "delta", "full"]),
      items: z.array(ListedDeployment),
      removed: z.array(DeploymentId),
      /** Rows that cannot be parsed, and why. The node keeps its former copies of them. */
      skipped: z.array(SkippedDeployment).optional(),
      /** True: the rest did not fit; call again at once with this revision. */
      more: z.boolean().optional(),
      /** Recent load samples by node address. A node without one is never the least loaded. */
      resource_usage: z.record(NodeId, ResourceUsage),
      /** `items` has only the rows that this node runs or takes over next, daemons, and rows of an unknown type. */
      subset: ListSubset.optional(),
    }),
  },
  "deployment.release": {
    // Any text, not only addresses: a row may name a node that never existed, and must be released too.
    params: z.object({
      addresses: z.array(text(RELEASE_ADDRESS_LENGTH_MAX).min(1)).min(1).max(RELEASE_ADDRESSES_MAX),
      /**
       * The caller's own rows, whose children have ended because the caller stops. `addresses` is the caller alone
       * then: a server that does not know this field looks whether the caller is lost, and releases nothing.
       */
      stopped: z.array(DeploymentTerm).min(1).max(CLAIM_CANDIDATES_MAX).optional(),
    }),
    result: z.object({ released: z.array(DeploymentTerm) }),
  },
  "deployment.claim": {
    params: z.object({ candidates: z.array(DeploymentTerm).min(1).max(CLAIM_CANDIDATES_MAX) }),
    result: DeploymentTerm,
  },
  /** Requests a row of a draining owner. The owner keeps it until this node has installed it. */
  "deployment.reserve": {
    params: z.object({ candidates: z.array(DeploymentTerm).min(1).max(CLAIM_CANDIDATES_MAX) }),
    result: DeploymentTerm,
  },
  "deployment.report": {
    params: DeploymentReport,
    /** The value of the report, once it is stored: the release statement waits for as long. */
    result: z.object({ lost_after_ms: DurationMs.optional() }),
  },
  /** The values of the secrets of a deployment, for the node that runs it in this term. */
  "deployment.secrets": {
    params: DeploymentTerm,
    /** By the name of the secret. */
    result: z.object({ values: z.record(z.string(), z.string()) }),
  },
} as const;

/** Calls from a server to a node. */
export const SERVER_CALLS = {
  "log.read": {
    params: LogSelection,
    result: LogLines.extend({ files: z.array(LogFile).max(100).optional() }),
  },
  /** Answered at once; the lines follow as `log_chunk` with the id of this request. */
  "log.follow": { params: LogSelection, result: z.object({}) },
  "log.stop": { params: z.object({ id: CallId }), result: z.object({}) },
  "deployment.restart": {
    params: z.object({ deployment_id: DeploymentId }),
    result: z.object({}),
  },
} as const;

type Calls = typeof NODE_CALLS & typeof SERVER_CALLS;
export type NodeMethod = keyof typeof NODE_CALLS;
export type ServerMethod = keyof typeof SERVER_CALLS;
export type CallParams<M extends keyof Calls> = z.infer<Calls[M]["params"]>;
export type CallResult<M extends keyof Calls> = z.infer<Calls[M]["result"]>;

/** A `response` names no method: its reader parses `result` by the method of the request. */
export const CallResponse = z
  .object({
    type: z.literal("response"),
    id: CallId,
    result: z.unknown().optional(),
    error: ErrorInfo.optional(),
  })
  .refine(
    (reply) => reply.result === undefined || !reply.error,
    "is a result or an error, not both",
  );
export type CallResponse = z.infer<typeof CallResponse>;

const request = <M extends string, P extends z.ZodType>(method: M, params: P) =>
  z.object({ type: z.literal("request"), id: CallId, method: z.literal(method), params });

export const NodeRequest = z.discriminatedUnion("method", [
  request("member.list", NODE_CALLS["member.list"].params),
  request("deployment.list", NODE_CALLS["deployment.list"].params),
  request("deployment.release", NODE_CALLS["deployment.release"].params),
  request("deployment.claim", NODE_CALLS["deployment.claim"].params),
  request("deployment.reserve", NODE_CALLS["deployment.reserve"].params),
  request("deployment.report", NODE_CALLS["deployment.report"].params),
  request("deployment.secrets", NODE_CALLS["deployment.secrets"].params),
]);
export type NodeRequest = z.infer<typeof NodeRequest>;

export const ServerRequest = z.discriminatedUnion("method", [
  request("log.read", SERVER_CALLS["log.read"].params),
  request("log.follow", SERVER_CALLS["log.follow"].params),
  request("log.stop", SERVER_CALLS["log.stop"].params),
  request("deployment.restart", SERVER_CALLS["deployment.restart"].params),
]);
export type ServerRequest = z.infer<typeof ServerRequest>;
