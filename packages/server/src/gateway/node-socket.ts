import type { Duplex } from "node:stream";
import {
  CLOSE_CODES,
  isNodeUnit,
  type NodeRegister,
  type NodeRequest,
  NodeToServer,
  PROTOCOL_VERSION,
  type ServerToNode,
  TenureError,
  toErrorInfo,
  toErrorMessage,
} from "@tenure/protocol";
import type { WebSocket } from "ws";
import type { Clock } from "../kernel/clock.ts";
import type { Random } from "../kernel/random.ts";
import type { NodeConnection, Nodes } from "../membership/nodes.ts";
import { closeCodeOf, type NodePrincipal } from "./admission.ts";
import { type Challenge, createChallenge } from "./challenge.ts";
import { type FrameLimits, speak } from "./frames.ts";
import { createNodeLine } from "./node-line.ts";

export interface NodeSocketOptions {
  instanceId: string;
  nodes: Nodes;
  /** Who shows this token; `undefined` for one that is not known. */
  identify: (token: string | undefined) => NodePrincipal | undefined;
  /** The token that came with the upgrade, if any. */
  headerToken: string | undefined;
  heartbeatIntervalMs: number;
  calls: NodeCalls;
  clock: Clock;
  random: Random;
  limits?: FrameLimits | undefined;
  /** What the socket writes to. */
  stream?: Duplex | undefined;
}

/** What answers a node's `request`s. The node is the socket's; no parameter can name another. */
export interface NodeCalls {
  answer(node: NodeConnection, request: NodeRequest): Promise<unknown>;
}

/** How long a socket may stay silent about who it is. */
const REGISTER_LIMIT_MS = 10_000;

/** One node's socket: it proves who it is, then every message is one call. */
export function acceptNode(socket: WebSocket, options: NodeSocketOptions): void {
  const { instanceId, nodes, clock, random } = options;
  const challenge = createChallenge({ serverId: instanceId, clock, random });
  let node: NodeConnection | undefined;
  let registering = false;

  const link = speak<NodeToServer, ServerToNode>(socket, {
    schema: NodeToServer,
    handlers: {
      receive: (message) => (node ? receive(node, message) : register(message)),
      closed() {
        clearTimeout(impatience);
        line.end();
        void node?.left().catch(() => {});
      },
    },
    limits: options.limits,
    stream: options.stream,
  });
  const line = createNodeLine(link.send);
  const impatience = setTimeout(
    () => link.close(CLOSE_CODES.UNAUTHENTICATED, "no node_register in time"),
    REGISTER_LIMIT_MS,
  );
  link.send({ type: "node_challenge", nonce: challenge.nonce, server_id: instanceId });

  async function register(message: NodeToServer): Promise<void> {
    if (message.type !== "node_register" || registering) {
      throw new TenureError("INVALID_MESSAGE", {
        reason: `${message.type} before node_register was answered`,
      });
    }
    registering = true;
    try {
      admit(message, challenge, options.identify(message.token ?? options.headerToken));
      const joined = await nodes.join(message, { ...link, call: line.call, follow: line.follow });
      if (socket.readyState !== socket.OPEN) return await joined.left();
      node = joined;
      clearTimeout(impatience);
      link.send({
        type: "node_register_ack",
        node_id: joined.nodeId,
        instance_id: instanceId,
        epoch: joined.epoch,
        heartbeat_interval_ms: options.heartbeatIntervalMs,
        protocol_version: PROTOCOL_VERSION,
      });
      if (joined.snapshot.draining) link.send({ type: "node_control", command: "drain" });
      nodes.introduce(joined);
    } catch (error) {
      link.send(toErrorMessage(error));
      link.close(closeCodeOf(error), "not let in");
    }
  }

  async function receive(current: NodeConnection, message: NodeToServer): Promise<void> {
    switch (message.type) {
      case "node_register":
        throw new TenureError("INVALID_MESSAGE", { reason: "node_register was said already" });
      case "node_heartbeat":
        // Not awaited in line: a slow Postgres must not hold up what the node says of its jobs.
        void heartbeat(current, message);
        return;
      case "request":
        void answer(current, message);
        return;
      case "job_result": {
        const { job_id, attempt_id } = message;
        return link.send({ type: "job_result_ack", job_id, attempt_id, outcome: "stale" });
      }
      case "job_ack":
      case "job_started":
      case "job_progress":
        throw new TenureError("STALE_ATTEMPT", message);
      case "response":
        return line.answered(message);
      case "log_chunk":
        return line.heard(message);
    }
  }

  async function heartbeat(
    current: NodeConnection,
    { seq, resource_usage, services }: Extract<NodeToServer, { type: "node_heartbeat" }>,
  ): Promise<void> {
    const presence_ok = await current.heartbeat({ resourceUsage: resource_usage, services });
    link.send({ type: "node_heartbeat_ack", seq, presence_ok, epoch: current.epoch });
  }

  async function answer(current: NodeConnection, request: NodeRequest): Promise<void> {
    try {
      link.send({
        type: "response",
        id: request.id,
        result: await options.calls.answer(current, request),
      });
    } catch (error) {
      link.send({ type: "response", id: request.id, error: toErrorInfo(error) });
    }
  }
}

/** Everything that must hold before a node is anybody here. */
function admit(
  message: NodeRegister,
  challenge: Challenge,
  principal: NodePrincipal | undefined,
): void {
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
}

/** What a limited token forbids of what the node asks for. */
function beyondToken(
  message: NodeRegister,
  { addresses, pools, node_unit, capacity_max }: NodePrincipal,
): string | undefined {
  if (addresses && !addresses.includes(message.address)) return `the address ${message.address}`;
  const pool = pools && message.pools?.find((name) => !pools.includes(name));
  if (pool !== undefined) return `the pool ${pool}`;
  if (node_unit === false && isNodeUnit(message.tags)) return "being a node-unit";
  if (capacity_max !== undefined && (message.capacity ?? 0) > capacity_max)
    return `more than ${capacity_max} slots`;
  return undefined;
}
