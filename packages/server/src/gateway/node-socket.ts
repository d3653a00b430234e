import type { Duplex } from "node:stream";
import {
  AckList,
  areTraitsSmall,
  CLOSE_CODES,
  grantedOf,
  isTenureError,
  type JobAttempt,
  NODE_FEATURES,
  type NodeAck,
  type NodeRegister,
  type NodeRequest,
  PROTOCOL_VERSION,
  type ServerToNode,
  TenureError,
  TRAITS_TOO_LARGE,
  toErrorInfo,
  toErrorMessage,
} from "@tenure/protocol";
import type { WebSocket } from "ws";
import type { Principal } from "../access/principal.ts";
import { type NodeMessage, parseNodeMessage } from "../jobs/api/raw-json.ts";
import type { NodeJobs } from "../jobs/jobs.ts";
import type { Clock } from "../kernel/clock.ts";
import { newestOnly } from "../kernel/newest.ts";
import type { Random } from "../kernel/random.ts";
import { tokenKey } from "../kernel/scope.ts";
import type { NodeConnection } from "../membership/node-connection.ts";
import type { Nodes } from "../membership/nodes.ts";
import { closeCodeOf } from "./admission.ts";
import type { CallBudget } from "./call-budget.ts";
import { type CallQueue, createCallQueue } from "./call-queue.ts";
import { type Challenge, createChallenge } from "./challenge.ts";
import type { JoinPace } from "./join-pace.ts";
import {
  type Closed,
  type FrameLimits,
  type MessageSocket,
  openMessageSocket,
} from "./message-socket.ts";
import { admitNode, tokenLabels } from "./node-admission.ts";
import { createNodeRpc, type NodeRpc } from "./node-rpc.ts";
import type { TokenNodes } from "./token-nodes.ts";

export interface NodeSocketOptions {
  instanceId: string;
  nodes: Nodes;
  /** The principal of a token; `undefined` for an unknown one. */
  identify: (token: string | undefined) => Promise<Principal | undefined>;
  /** The token that came with the upgrade, if any. */
  headerToken: string | undefined;
  /** Called with the reason before a rejected socket is closed. */
  onRefused?: ((error: unknown) => void) | undefined;
  heartbeatIntervalMs: number;
  calls: NodeCalls;
  /** How often the nodes of one token may call, by `tokenKey`. */
  budgetOf: (token: string) => CallBudget;
  /** Limits the joins that are unfinished at once. */
  joins: Pick<JoinPace, "run">;
  jobs: NodeJobs;
  clock: Clock;
  random: Random;
  limits?: FrameLimits | undefined;
  /** Counts the nodes of each token, for `nodes_max`. */
  tokenNodes: TokenNodes;
  /** The stream under the WebSocket. */
  stream?: Duplex | undefined;
}

/** Answers a node's `request`s in JSON. The node is the socket's; no parameter can name another. */
export interface NodeCalls {
  answer(node: NodeConnection, request: NodeRequest): Promise<CallAnswer>;
}

export interface CallAnswer {
  /** The JSON of the result. */
  parts: readonly Buffer[];
  /** Called once, when the answer has left the process or never will. */
  written?(): void;
}

interface Beat {
  current: NodeConnection;
  beat: Extract<NodeMessage, { type: "node_heartbeat" }>;
}

type Attempt = ReturnType<typeof attemptOf>;

const REGISTER_LIMIT_MS = 10_000;
/** A node whose jobs block its main thread for so long cannot accept another in time: all its slots count as used. */
const STALLED_MS = 1_000;

/** Serves the socket of one node. */
export function acceptNode(socket: WebSocket, options: NodeSocketOptions): void {
  new NodeSocket(socket, options);
}

/**
 * The socket of one node. It sends a challenge and waits for `node_register`; once the node is admitted, every message is
 * one call to a domain.
 */
class NodeSocket {
  readonly #options: NodeSocketOptions;
  readonly #socket: WebSocket;
  readonly #link: MessageSocket<ServerToNode>;
  readonly #rpc: NodeRpc;
  readonly #calls: CallQueue;
  readonly #challenge: Challenge;
  readonly #registerTimer: NodeJS.Timeout;
  #isRegistering = false;
  /** Set once the node is registered. */
  #node: NodeConnection | undefined;
  #budget: CallBudget | undefined;
  #acks: AckList<NodeAck> | undefined;
  #leaveToken = () => {};

  constructor(socket: WebSocket, options: NodeSocketOptions) {
    const { instanceId: serverId, clock, random } = options;
    this.#options = options;
    this.#socket = socket;
    this.#challenge = createChallenge({ serverId, clock, random });
    this.#link = openMessageSocket<NodeMessage, ServerToNode>(socket, {
      parse: parseNodeMessage,
      handlers: {
        receive: (message) =>
          this.#node ? this.#receive(this.#node, message) : this.#register(message),
        closed: (how) => this.#closed(how),
      },
      limits: options.limits,
      stream: options.stream,
    });
    this.#rpc = createNodeRpc(this.#link.send);
    this.#calls = createCallQueue(this.#link.pauseReading);
    this.#registerTimer = setTimeout(
      () => this.#link.close(CLOSE_CODES.UNAUTHENTICATED, "no node_register within 10 s"),
      REGISTER_LIMIT_MS,
    );
    this.#link.send({
      type: "node_challenge",
      nonce: this.#challenge.nonce,
      server_id: serverId,
    });
  }

  #closed(how: Closed): void {
    clearTimeout(this.#registerTimer);
    this.#rpc.end();
    this.#calls.end();
    this.#acks?.clear();
    this.#leaveToken();
    if (this.#node) void this.#left(this.#node, how);
  }

  async #register(message: NodeMessage): Promise<void> {
    if (message.type !== "node_register" || this.#isRegistering) {
      throw new TenureError("INVALID_MESSAGE", {
        reason: `unexpected ${message.type}: node_register is not answered yet`,
      });
    }
    this.#isRegistering = true;
    try {
      await this.#join(message);
    } catch (error) {
      this.#options.onRefused?.(error);
      this.#link.send(toErrorMessage(error));
      this.#link.close(closeCodeOf(error), "registration rejected");
    }
  }

  async #join(message: NodeRegister): Promise<void> {
    const { instanceId, nodes, jobs } = this.#options;
    const presented = await this.#options.identify(message.token ?? this.#options.headerToken);
    const principal = admitNode(message, this.#challenge, presented);
    this.#enterToken(message, principal);
    this.#budget = this.#options.budgetOf(tokenKey(principal));
    const given = tokenLabels(message, principal);
    const labels = { ...message.labels, ...given };
    if (!areTraitsSmall({ labels, tags: message.tags }))
      throw new TenureError("FORBIDDEN", { reason: TRAITS_TOO_LARGE });
    const running = (message.running ?? []).map(attemptOf);
    const features = grantedOf(NODE_FEATURES, message.features);
    if (features.includes("ack_lists")) this.#acks = createAckList(this.#link.sendText);
    const calls = { call: this.#rpc.call, follow: this.#rpc.follow };
    const takesAs = features.includes("deferred_start") ? message.boot_id : undefined;
    const link = { ...this.#link, ...calls, acks: this.#acks, takesAs };
    const { tenant, tenants = [tenant] } = principal;
    const joined = await this.#options.joins.run(async () => {
      await this.#reserveSlots(message, running);
      return nodes.join({ ...message, labels }, link, { tenants });
    });
    if (this.#socket.readyState !== this.#socket.OPEN)
      return this.#left(joined, { silently: false, abruptly: true });
    this.#node = joined;
    clearTimeout(this.#registerTimer);
    this.#link.send({
      type: "node_register_ack",
      node_id: joined.nodeId,
      instance_id: instanceId,
      epoch: joined.epoch,
      heartbeat_interval_ms: this.#options.heartbeatIntervalMs,
      protocol_version: PROTOCOL_VERSION,
      ...(given && { labels: given }),
      ...(features.length > 0 && { features }),
    });
    if (joined.snapshot.draining) this.#link.send({ type: "node_control", command: "drain" });
    nodes.introduce(joined);
    jobs.joined(joined, running).catch(() => {}); // With the store down: its heartbeats do the same.
  }

  #enterToken({ address }: NodeRegister, principal: Principal): void {
    const { nodes_max } = principal;
    if (nodes_max === undefined || this.#socket.readyState !== this.#socket.OPEN) return;
    const { tokenNodes } = this.#options;
    const token = tokenKey(principal);
    if (!tokenNodes.enter(token, address, nodes_max))
      throw new TenureError("FORBIDDEN", {
        reason: `this token does not allow more than ${nodes_max} nodes at this instance`,
      });
    this.#leaveToken = () => tokenNodes.leave(token, address);
  }

  /** Reserves the slots of the jobs it runs before the node can be chosen for others. Without the hot store it joins too. */
  async #reserveSlots({ address, capacity = 0 }: NodeRegister, running: Attempt[]): Promise<void> {
    try {
      await this.#options.jobs.registering({ nodeId: address, capacity, running });
    } catch (error) {
      if (!isTenureError(error, "DEPENDENCY_DOWN")) throw error;
    }
  }

  #receive(current: NodeConnection, message: NodeMessage): void {
    switch (message.type) {
      case "node_register":
        throw new TenureError("INVALID_MESSAGE", { reason: "duplicate node_register" });
      case "node_heartbeat":
        // Not awaited: a slow Postgres must not delay the node's job reports.
        current.setLeaving(message.draining ?? false);
        this.#renewSlots({ current, beat: message });
        this.#renewPresence({ current, beat: message });
        return;
      case "request":
        this.#calls.run(() => this.#answer(current, message));
        return;
      case "job_ack":
      case "job_started":
      case "job_progress":
      case "job_result":
        this.#options.jobs.reported(current, message);
        return;
      case "response":
        this.#rpc.onResponse(message);
        return;
      case "log_chunk":
        this.#rpc.onLog(message);
        return;
    }
  }

  /** The instance that sees a node leave retries its jobs. With a store down, the recovery loop does. */
  async #left(gone: NodeConnection, { silently, abruptly }: Closed): Promise<void> {
    const isLeave = await gone.left(silently).catch(() => false);
    await this.#options.jobs.left(gone, { isLeave, abruptly }).catch(() => {});
  }

  readonly #renewSlots = newestOnly<Beat>(async ({ current, beat }) => {
    const { capacity } = current.snapshot;
    const { draining = false } = beat;
    const running = beat.running.map(attemptOf);
    const isStalled = (beat.stalled_ms ?? 0) >= STALLED_MS;
    try {
      const stuck = await this.#options.jobs.heartbeat(current, { running, capacity, draining });
      current.setStuck(isStalled ? capacity : stuck);
    } catch {} // With the store down: the next heartbeat renews them.
  });

  readonly #renewPresence = newestOnly<Beat>(async ({ current, beat }) => {
    const { seq, resource_usage, services } = beat;
    const presence_ok = await current.heartbeat({ resourceUsage: resource_usage, services });
    this.#link.send({ type: "node_heartbeat_ack", seq, presence_ok, epoch: current.epoch });
  });

  async #answer(current: NodeConnection, request: NodeRequest): Promise<void> {
    try {
      await this.#budget?.take();
      const { parts, written } = await this.#options.calls.answer(current, request);
      const head = Buffer.from(`{"type":"response","id":${JSON.stringify(request.id)},"result":`);
      this.#link.sendText(Buffer.concat([head, ...parts, Buffer.from("}")]), written);
    } catch (error) {
      this.#link.send({ type: "response", id: request.id, error: toErrorInfo(error) });
    }
  }
}

const createAckList = (send: (frame: string) => void): AckList<NodeAck> =>
  new AckList({
    send,
    after(ms, act) {
      const timer = setTimeout(act, ms).unref();
      return () => clearTimeout(timer);
    },
  });

const attemptOf = ({ job_id, attempt_id }: JobAttempt) => ({
  jobId: job_id,
  attemptId: attempt_id,
});
