import type { Duplex } from "node:stream";
import {
  areTraitsSmall,
  CLOSE_CODES,
  isNodeUnit,
  isTenureError,
  type JobAttempt,
  type NodeRegister,
  type NodeRequest,
  PROTOCOL_VERSION,
  type ServerToNode,
  TenureError,
  TOKEN_LABEL_PREFIX,
  TRAITS_TOO_LARGE,
  toErrorInfo,
  toErrorMessage,
} from "@tenure/protocol";
import type { WebSocket } from "ws";
import { type NodeMessage, parseNodeMessage } from "../jobs/api/raw-json.ts";
import type { NodeJobs } from "../jobs/jobs.ts";
import type { Clock } from "../kernel/clock.ts";
import { newestOnly } from "../kernel/newest.ts";
import type { Random } from "../kernel/random.ts";
import type { NodeConnection } from "../membership/node-connection.ts";
import type { Nodes } from "../membership/nodes.ts";
import { closeCodeOf, type NodePrincipal } from "./admission.ts";
import type { CallBudget } from "./call-budget.ts";
import { createCallLine } from "./call-queue.ts";
import { type Challenge, createChallenge } from "./challenge.ts";
import { type Closed, type FrameLimits, speak } from "./message-socket.ts";
import { createNodeLine } from "./node-rpc.ts";
import type { TokenNodes } from "./token-nodes.ts";

export interface NodeSocketOptions {
  instanceId: string;
  nodes: Nodes;
  /** Who shows this token; `undefined` for one that is not known. */
  identify: (token: string | undefined) => NodePrincipal | undefined;
  /** The token that came with the upgrade, if any. */
  headerToken: string | undefined;
  /** Called with the reason before a socket that was not admitted is closed. */
  onRefused?: ((error: unknown) => void) | undefined;
  heartbeatIntervalMs: number;
  calls: NodeCalls;
  /** How often the nodes of one token may call, by the token's name. */
  budgetOf: (tokenName: string) => CallBudget;
  jobs: NodeJobs;
  clock: Clock;
  random: Random;
  limits?: FrameLimits | undefined;
  /** Counts the nodes of each token, for `nodes_max`. */
  tokenNodes: TokenNodes;
  /** What the socket writes to. */
  stream?: Duplex | undefined;
}

/** What answers a node's `request`s, in JSON. The node is the socket's; no parameter can name another. */
export interface NodeCalls {
  answer(node: NodeConnection, request: NodeRequest): Promise<Buffer>;
}

interface Beat {
  current: NodeConnection;
  beat: Extract<NodeMessage, { type: "node_heartbeat" }>;
}

/** How long a socket may stay silent about who it is. */
const REGISTER_LIMIT_MS = 10_000;

/** One node's socket: it proves who it is, then every message is one call. */
export function acceptNode(socket: WebSocket, options: NodeSocketOptions): void {
  const { instanceId, nodes, jobs, clock, random } = options;
  const challenge = createChallenge({ serverId: instanceId, clock, random });
  let node: NodeConnection | undefined;
  let registering = false;
  let budget: CallBudget | undefined;
  let leaveToken = () => {};

  const link = speak<NodeMessage, ServerToNode>(socket, {
    parse: parseNodeMessage,
    handlers: {
      receive: (message) => (node ? receive(node, message) : register(message)),
      closed(how) {
        clearTimeout(impatience);
        line.end();
        calls.end();
        leaveToken();
        if (node) void left(node, how);
      },
    },
    limits: options.limits,
    stream: options.stream,
  });
  const line = createNodeLine(link.send);
  const calls = createCallLine(link.holdReading);
  const impatience = setTimeout(
    () => link.close(CLOSE_CODES.UNAUTHENTICATED, "no node_register in time"),
    REGISTER_LIMIT_MS,
  );
  link.send({ type: "node_challenge", nonce: challenge.nonce, server_id: instanceId });

  async function register(message: NodeMessage): Promise<void> {
    if (message.type !== "node_register" || registering) {
      throw new TenureError("INVALID_MESSAGE", {
        reason: `${message.type} before node_register was answered`,
      });
    }
    registering = true;
    try {
      const principal = options.identify(message.token ?? options.headerToken);
      const { tenant, tenants = [tenant] } = admit(message, challenge, principal);
      enterToken(message, principal);
      budget = options.budgetOf(principal?.name ?? "");
      const tokensLabels = tokenLabels(message, principal);
      const labels = { ...message.labels, ...tokensLabels };
      if (!areTraitsSmall({ labels, tags: message.tags }))
        throw new TenureError("FORBIDDEN", { reason: TRAITS_TOO_LARGE });
      const running = (message.running ?? []).map(attemptOf);
      await holdSlots(message, running);
      const way = { ...link, call: line.call, follow: line.follow };
      const joined = await nodes.join({ ...message, labels }, way, { tenants });
      if (socket.readyState !== socket.OPEN)
        return await left(joined, { silently: false, abruptly: true });
      node = joined;
      clearTimeout(impatience);
      link.send({
        type: "node_register_ack",
        node_id: joined.nodeId,
        instance_id: instanceId,
        epoch: joined.epoch,
        heartbeat_interval_ms: options.heartbeatIntervalMs,
        protocol_version: PROTOCOL_VERSION,
        ...(tokensLabels && { labels: tokensLabels }),
      });
      if (joined.snapshot.draining) link.send({ type: "node_control", command: "drain" });
      nodes.introduce(joined);
      jobs.joined(joined, running).catch(() => {}); // with the store down; its heartbeats come to the same
    } catch (error) {
      options.onRefused?.(error);
      link.send(toErrorMessage(error));
      link.close(closeCodeOf(error), "not let in");
    }
  }

  function enterToken({ address }: NodeRegister, principal: NodePrincipal | undefined): void {
    const { name = "", nodes_max } = principal ?? {};
    if (nodes_max === undefined || socket.readyState !== socket.OPEN) return;
    if (!options.tokenNodes.enter(name, address, nodes_max))
      throw new TenureError("FORBIDDEN", {
        reason: `this token does not allow more than ${nodes_max} nodes at this instance`,
      });
    leaveToken = () => options.tokenNodes.leave(name, address);
  }

  function receive(current: NodeConnection, message: NodeMessage): void {
    switch (message.type) {
      case "node_register":
        throw new TenureError("INVALID_MESSAGE", { reason: "node_register was said already" });
      case "node_heartbeat":
        // Not awaited in line: a slow Postgres must not hold up what the node says of its jobs.
        current.setLeaving(message.draining ?? false);
        renewSlots({ current, beat: message });
        renewPresence({ current, beat: message });
        return;
      case "request":
        calls.run(() => answer(current, message));
        return;
      case "job_ack":
      case "job_started":
      case "job_progress":
      case "job_result":
        jobs.reported(current, message);
        return;
      case "response":
        line.answered(message);
        return;
      case "log_chunk":
        line.heard(message);
        return;
    }
  }

  /** What it runs has its slots before anybody may choose it. Without the hot store it joins all the same. */
  async function holdSlots(
    { address, capacity = 0 }: NodeRegister,
    running: ReturnType<typeof attemptOf>[],
  ): Promise<void> {
    try {
      await jobs.registering({ nodeId: address, capacity, running });
    } catch (error) {
      if (!isTenureError(error, "DEPENDENCY_DOWN")) throw error;
    }
  }

  /** Whoever sees a node leave sees to its jobs. Unsure, with a store down, the due index does. */
  async function left(gone: NodeConnection, { silently, abruptly }: Closed): Promise<void> {
    const isLeave = await gone.left(silently).catch(() => false);
    await jobs.left(gone, { isLeave, abruptly }).catch(() => {});
  }

  const renewSlots = newestOnly<Beat>(async ({ current, beat }) => {
    const { capacity } = current.snapshot;
    const { draining = false } = beat;
    const running = beat.running.map(attemptOf);
    const isStalled = (beat.stalled_ms ?? 0) >= STALLED_MS;
    try {
      const stuck = await jobs.heartbeat(current, { running, capacity, draining });
      current.setStuck(isStalled ? capacity : stuck);
    } catch {} // with the store down; the next will do
  });

  const renewPresence = newestOnly<Beat>(async ({ current, beat }) => {
    const { seq, resource_usage, services } = beat;
    const presence_ok = await current.heartbeat({ resourceUsage: resource_usage, services });
    link.send({ type: "node_heartbeat_ack", seq, presence_ok, epoch: current.epoch });
  });

  async function answer(current: NodeConnection, request: NodeRequest): Promise<void> {
    try {
      await budget?.take();
      const result = await options.calls.answer(current, request);
      const head = Buffer.from(`{"type":"response","id":${JSON.stringify(request.id)},"result":`);
      link.sendText(Buffer.concat([head, result, Buffer.from("}")]));
    } catch (error) {
      link.send({ type: "response", id: request.id, error: toErrorInfo(error) });
    }
  }
}

/** A node whose jobs keep its main thread busy for so long cannot accept another in time: all its slots count as used. */
const STALLED_MS = 1_000;

const attemptOf = ({ job_id, attempt_id }: JobAttempt) => ({
  jobId: job_id,
  attemptId: attempt_id,
});

/** Everything that must hold before a node is anybody here. */
function admit(
  message: NodeRegister,
  challenge: Challenge,
  principal: NodePrincipal | undefined,
): NodePrincipal {
  const { address, boot_id, signature, protocol_version } = message;
  if (!challenge.answer({ address, bootId: boot_id, signature })) {
    throw new TenureError("UNAUTHENTICATED", {
      reason: "the signature does not prove this address",
    });
  }
  if (protocol_version !== PROTOCOL_VERSION) {
    throw new TenureError("UNSUPPORTED_VERSION", {
      offered: protocol_version,
      supported: PROTOCOL_VERSION,
    });
  }
  if (!principal) throw new TenureError("UNAUTHENTICATED", { reason: "a valid token is needed" });
  if (principal.role !== "node" && principal.role !== "admin") {
    throw new TenureError("FORBIDDEN", {
      reason: `role ${principal.role} may not connect as a node`,
    });
  }
  const beyond = beyondToken(message, principal);
  if (beyond) throw new TenureError("FORBIDDEN", { reason: `this token does not allow ${beyond}` });
  return principal;
}

/** What a limited token forbids of what the node asks for. */
function beyondToken(
  message: NodeRegister,
  { addresses, pools, node_unit, capacity_max }: NodePrincipal,
): string | undefined {
  if (addresses && !addresses.includes(message.address)) return `the address ${message.address}`;
  const pool = pools && message.pools?.find((name) => !pools.includes(name));
  if (pool !== undefined) return `the pool ${pool}`;
  // A token for some pools is one for workers: node-units get the secrets of deployments.
  const allowsUnits = node_unit ?? pools === undefined;
  if (!allowsUnits && isNodeUnit(message.tags)) return "being a node-unit";
  if (capacity_max !== undefined && (message.capacity ?? 0) > capacity_max)
    return `more than ${capacity_max} slots`;
  const own = Object.keys(message.labels ?? {}).find((name) => name.startsWith(TOKEN_LABEL_PREFIX));
  if (own !== undefined) return `the label ${own}: only the server sets ${TOKEN_LABEL_PREFIX}`;
  return undefined;
}

/**
 * The labels that the token sets. An agent of 0.1 does not know them: it would claim what the labels select, and then
 * refuse to run it.
 */
function tokenLabels(
  { tags, token_labels }: NodeRegister,
  principal: NodePrincipal | undefined,
): Record<string, string> | undefined {
  if (!principal?.labels || (isNodeUnit(tags) && !token_labels)) return undefined;
  const entries = Object.entries(principal.labels);
  return Object.fromEntries(
    entries.map(([name, value]) => [TOKEN_LABEL_PREFIX + name, value] as const),
  );
}
