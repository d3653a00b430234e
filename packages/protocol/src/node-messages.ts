import * as z from "zod";
import { CallId, CallResponse, ListRevision, NodeRequest, ServerRequest } from "./calls.ts";
import { PATTERN_LENGTH_MAX } from "./eligibility.ts";
import {
  AttemptId,
  BootId,
  DurationMs,
  Epoch,
  InstanceId,
  JobId,
  Json,
  Labels,
  NodeAddress,
  NodeId,
  Pool,
  RandomToken,
  RequestId,
  SessionId,
  TraceId,
  TurnId,
  text,
} from "./formats.ts";
import { JobAttempt, NodeJobError, TimeoutMs } from "./job.ts";
import { LogLines } from "./log-lines.ts";
import {
  CAPACITY_MAX,
  Capacity,
  ClaimPolicyName,
  Member,
  Pools,
  ResourceUsage,
  Services,
  Tags,
  ViewState,
} from "./node.ts";
import { ACKS_MAX, ErrorMessage, Features, GoAway } from "./shared-messages.ts";

// Unknown fields are dropped by `z.object`; unknown types and wrong known fields are errors.

const Seq = z.int().min(0);
const Running = z.array(JobAttempt).max(CAPACITY_MAX);

const NodeRegister = z.object({
  type: z.literal("node_register"),
  // Any number: another version is answered with UNSUPPORTED_VERSION, not as a bad frame.
  protocol_version: z.int(),
  address: NodeAddress,
  boot_id: BootId,
  /** The boot id of the former process, from the data directory that this process has locked now. */
  former_boot_id: BootId.optional(),
  signature: z.base64().max(128),
  token: z.string().optional(),
  name: text(128).min(1),
  version: text(64),
  tags: Tags,
  labels: Labels.optional(),
  /** The node adopts the labels of `node_register_ack`. Without it the server sets none on a node-unit. */
  token_labels: z.boolean().optional(),
  /** The node accepts the members in pages. Without it they come in one frame. */
  member_pages: z.boolean().optional(),
  /** The node accepts several changes of the members in one event. Without it each is an event. */
  member_batches: z.boolean().optional(),
  pools: Pools.optional(),
  services: Services.optional(),
  capacity: Capacity.optional(),
  running: Running.optional(),
  claim_policy: ClaimPolicyName.optional(),
  trusted_package_regexp: text(PATTERN_LENGTH_MAX).optional(),
  custom_command: z.boolean().optional(),
  features: Features.optional(),
});
export type NodeRegister = z.infer<typeof NodeRegister>;

const NodeHeartbeat = z.object({
  type: z.literal("node_heartbeat"),
  seq: Seq,
  running: Running,
  resource_usage: ResourceUsage.optional(),
  services: Services.optional(),
  /** True from a node that is about to leave: it keeps its work and takes no more. */
  draining: z.boolean().optional(),
  /** For how long the thread that runs the jobs has been blocked; sent by the socket thread meanwhile. */
  stalled_ms: DurationMs.optional(),
});

const JobAck = JobAttempt.extend({ type: z.literal("job_ack") });
/** Steps that this report implies, and how long ago they were by the node's clock. With `deferred_start`. */
const Deferred = z.object({
  accepted_ms_ago: DurationMs.optional(),
  started_ms_ago: DurationMs.optional(),
});
export type Deferred = z.infer<typeof Deferred>;
const JobStarted = JobAttempt.extend({ type: z.literal("job_started"), ...Deferred.shape });
const JobProgressToServer = JobAttempt.extend({ type: z.literal("job_progress"), body: Json });

const JobResultToServer = JobAttempt.extend({
  type: z.literal("job_result"),
  success: z.boolean(),
  body: Json.optional(),
  error: NodeJobError.optional(),
  ...Deferred.shape,
});
export type JobResultToServer = z.infer<typeof JobResultToServer>;

/** Lines of a followed log; `id` is that of the `log.follow` request. */
const LogChunk = LogLines.extend({ type: z.literal("log_chunk"), id: CallId });

/** Messages from a node to a server. */
export const NodeToServer = z.discriminatedUnion("type", [
  NodeRegister,
  NodeHeartbeat,
  JobAck,
  JobStarted,
  JobProgressToServer,
  JobResultToServer,
  NodeRequest,
  CallResponse,
  LogChunk,
]);
export type NodeToServer = z.infer<typeof NodeToServer>;

const NodeChallenge = z.object({
  type: z.literal("node_challenge"),
  nonce: RandomToken,
  server_id: InstanceId,
});

const NodeRegisterAck = z.object({
  type: z.literal("node_register_ack"),
  node_id: NodeId,
  instance_id: InstanceId,
  epoch: Epoch,
  heartbeat_interval_ms: DurationMs.min(1),
  protocol_version: z.int(),
  /** Labels that the node's token sets, under `token/`. */
  labels: Labels.optional(),
  /** The granted ones. */
  features: Features.optional(),
});

const NodeHeartbeatAck = z.object({
  type: z.literal("node_heartbeat_ack"),
  seq: Seq,
  /** Whether presence was renewed in Postgres. Only that counts as contact. */
  presence_ok: z.boolean(),
  epoch: Epoch,
});

/** What the server did with a result. It implies nothing about other results. */
const NodeAck = JobAttempt.extend({ outcome: z.enum(["applied", "duplicate", "stale"]) });
export type NodeAck = z.infer<typeof NodeAck>;
const NodeAckList = z.array(NodeAck).max(ACKS_MAX);
const NodeAcks = z.object({ type: z.literal("acks"), acks: NodeAckList });

const JobAssign = z.object({
  type: z.literal("job_assign"),
  job_id: JobId,
  attempt_id: AttemptId,
  request_id: RequestId,
  session_id: SessionId.optional(),
  turn_id: TurnId.optional(),
  pool: Pool,
  payload: Json,
  timeout_ms: TimeoutMs,
  trace_id: TraceId.optional(),
  /** With `ack_lists`. */
  acks: NodeAckList.optional(),
});
export type JobAssign = z.infer<typeof JobAssign>;

const NodeJobCancel = JobAttempt.extend({ type: z.literal("job_cancel"), reason: z.string() });

const NodeResultAck = NodeAck.extend({ type: z.literal("job_result_ack") });

/**
 * The members. INIT has `members`; TERMINAL_CHANGE has `new` (JOIN), `new` and `old` (UPDATE) or `old` (LEAVE). After a gap
 * in `seq` the node calls `member.list`. A long INIT comes in pages, in the order of addresses. The `seq` of the first one
 * is that of the list; changes that arrive between two pages apply after the last. For a node with `member_batches` a
 * TERMINAL_CHANGE has the last states of the members that changed after `after_seq`, up to `seq`, or only a new view.
 */
const HostEvent = z.object({
  type: z.literal("host_event"),
  seq: Seq,
  event: z.enum(["INIT", "TERMINAL_CHANGE"]),
  view: ViewState,
  members: z.array(Member).optional(),
  /** On every page but the first: the last address of the page before. */
  after: NodeId.optional(),
  /** On every page but the last: the last address of this page. */
  next: NodeId.optional(),
  new: Member.optional(),
  old: Member.optional(),
  /** Of a batch: it has every change after this number, up to `seq`. */
  after_seq: Seq.optional(),
  changed: z.array(Member).optional(),
  left: z.array(z.object({ address: NodeId, epoch: Epoch })).optional(),
});
export type HostEvent = z.infer<typeof HostEvent>;

const DeploymentsChanged = z.object({
  type: z.literal("deployments_changed"),
  revision: ListRevision,
});

const NodeControl = z.object({
  type: z.literal("node_control"),
  command: z.enum(["drain", "resume"]),
});

/** Messages from a server to a node. */
export const ServerToNode = z.discriminatedUnion("type", [
  NodeChallenge,
  NodeRegisterAck,
  NodeHeartbeatAck,
  JobAssign,
  NodeJobCancel,
  NodeResultAck,
  NodeAcks,
  HostEvent,
  DeploymentsChanged,
  NodeControl,
  ServerRequest,
  CallResponse,
  GoAway,
  ErrorMessage,
]);
export type ServerToNode = z.infer<typeof ServerToNode>;

/** The text that a node signs at connect. The order and the colons are part of the contract. */
export function challengeText(parts: {
  server_id: string;
  nonce: string;
  address: string;
  boot_id: string;
}): string {
  return `tenure-node-v1:${parts.server_id}:${parts.nonce}:${parts.address}:${parts.boot_id}`;
}
