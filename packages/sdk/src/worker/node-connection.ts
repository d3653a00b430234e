import {
  challengeText,
  type ErrorMessage,
  fromErrorMessage,
  type JobAttempt,
  type NodeFeature,
  type NodeRegister,
  type NodeToServer,
  PROTOCOL_VERSION,
  type ResourceUsage,
  ServerToNode,
  type TenureError,
} from "@tenure/protocol";
import { systemClock } from "../clock.ts";
import type {
  Connection,
  ConnectionState,
  ConnectionTuning,
  Down,
} from "../connection/connection.ts";
import type { Greeting } from "../connection/handshake.ts";
import type { SendOutcome } from "../connection/link.ts";
import { createOutages } from "../connection/mover.ts";
import { createConnection } from "../connection/reconnecting.ts";
import { createAnswers, type ServerCallHandlers } from "./answers.ts";
import { type Calls, createCalls } from "./calls.ts";
import { createHeartbeats } from "./heartbeats.ts";
import { listMembers, type MemberMap, Members, type MembersView } from "./members.ts";
import type { NodeKey } from "./node-key.ts";

/** The fields of `node_register` that describe the node. */
export type NodeDescription = Omit<
  NodeRegister,
  | "type"
  | "protocol_version"
  | "address"
  | "boot_id"
  | "former_boot_id"
  | "signature"
  | "token"
  | "member_pages"
  | "features"
  | "member_batches"
  | "running"
>;

export type NodeRegistration = Extract<ServerToNode, { type: "node_register_ack" }>;

/** Messages about jobs and deployments. The connection handles all others itself. */
export type NodeIncoming = Extract<
  ServerToNode,
  { type: "job_assign" | "job_cancel" | "job_result_ack" | "acks" | "deployments_changed" }
>;
export type NodeOutgoing = Extract<
  NodeToServer,
  { type: "job_ack" | "job_started" | "job_progress" | "job_result" | "log_chunk" }
>;

export interface NodeEvents {
  ready?(registration: NodeRegistration): void;
  /** With `kind: "replaced"` another process has this address: work under it must stop. */
  down?(down: Down): void;
  state?(state: ConnectionState): void;
  message?(message: NodeIncoming): void;
  members?(view: MembersView): void;
  /** The server has renewed presence in Postgres; `lastContactMs` has changed. */
  contact?(lastContactMs: number): void;
  control?(command: "drain" | "resume"): void;
  /** An error about one job. Without this handler it goes to `problem`. */
  refused?(message: ErrorMessage): void;
  /** An error that does not end the connection. */
  problem?(error: TenureError): void;
}

export interface NodeConnectionOptions extends ConnectionTuning {
  urls: readonly string[];
  key: NodeKey;
  /** Random per process. It distinguishes a reconnect from another process with the same key. */
  bootId: string;
  /** The boot id of the former process, if it is known to have ended. */
  formerBootId?: string | undefined;
  token?: string | undefined;
  /** Features to ask the server for (docs/protocol.md). Without them it sends what every node understands. */
  features?: readonly NodeFeature[] | undefined;
  /** Called at every connect; `restart` applies a change. */
  describe(): NodeDescription;
  /** Attempts of this node. Called at every connect and for every heartbeat. */
  running?(): readonly JobAttempt[];
  resourceUsage?(): ResourceUsage | undefined;
  services?(): readonly string[] | undefined;
  /** Whether it wants no more jobs, sent with every heartbeat. */
  draining?(): boolean;
  handlers?: ServerCallHandlers;
  /** Timeout of calls that set none. */
  callTimeoutMs?: number;
  /** Replaces the map of the members, where many nodes of one process have the same ones. */
  memberMap?: MemberMap;
  on?: NodeEvents;
}

export interface NodeConnection extends Pick<Calls, "call"> {
  readonly state: ConnectionState;
  /** The HTTP URL of the instance of the present connection, or of the last one that was ready. */
  url(): string | undefined;
  /** Undefined while it is not registered. */
  readonly registration: NodeRegistration | undefined;
  /** Monotonic send time of the newest heartbeat that reached Postgres; undefined before the first. */
  readonly lastContactMs: number | undefined;
  readonly members: MembersView | undefined;
  /** Whether the server grants the feature on the present connection. */
  isGranted(feature: NodeFeature): boolean;
  start(): void;
  send(message: NodeOutgoing): SendOutcome;
  /** Like `send`, for a message that is serialized already. */
  sendFrame(frame: string): SendOutcome;
  /** Sends a heartbeat now, for news that should not wait for the next one. */
  heartbeat(): void;
  /** Reconnects and registers with the current result of `describe`. */
  restart(reason: string): void;
  /** Disconnects for good. For the server this is a LEAVE of the node. */
  close(): Promise<void>;
}

/** The connection of a node to the control plane: registration, heartbeats, the members view, calls in both directions. */
export function createNodeConnection(options: NodeConnectionOptions): NodeConnection {
  const { on = {}, clock = systemClock, random = Math.random } = options;
  const problem = (error: TenureError) => on.problem?.(error);
  const send = (message: NodeToServer): SendOutcome => connection.send(message);
  let registration: NodeRegistration | undefined;

  const calls = createCalls({ clock, send, timeoutMs: options.callTimeoutMs });
  const answers = createAnswers({ handlers: options.handlers ?? {}, send, problem });
  const members = new Members({
    clock,
    random,
    problem,
    list: () => listMembers(calls.call),
    changed: (view) => on.members?.(view),
    map: options.memberMap,
  });
  const heartbeats = createHeartbeats({
    clock,
    send,
    problem,
    sample: () => sample(options),
    contact(lastContactMs) {
      connection.well("presence");
      on.contact?.(lastContactMs);
    },
    unconfirmed: () => connection.trouble("presence"),
  });
  const outages = createOutages(() => connection);

  const connection: Connection<NodeToServer> = createConnection<
    ServerToNode,
    NodeToServer,
    NodeRegistration
  >({
    ...options,
    path: "/ws/node",
    incoming: ServerToNode,
    handshake: (greeting) => register(greeting, options),
    on: {
      ready(ack) {
        registration = ack;
        answers.connected();
        heartbeats.start({ epoch: ack.epoch, intervalMs: ack.heartbeat_interval_ms });
        on.ready?.(ack);
      },
      down(down) {
        disconnected(down.reason);
        on.down?.(down);
      },
      message: (message) => (receivers[message.type] as Receiver)(message),
      rejected(value, error) {
        answers.rejected(value, error);
        if ((value as { type?: unknown } | undefined)?.type === "host_event") members.refresh();
      },
      problem,
      state: (state) => on.state?.(state),
    },
  });

  function disconnected(reason: string): void {
    registration = undefined;
    heartbeats.stop();
    answers.down();
    members.down();
    calls.abandon(reason);
  }

  const receivers: Receivers = {
    node_heartbeat_ack: heartbeats.acked,
    host_event: (event) => members.receive(event),
    response(message) {
      outages.answered(message.error?.code);
      calls.answered(message);
    },
    request: answers.asked,
    node_control: ({ command }) => on.control?.(command),
    error(message) {
      outages.answered(message.code);
      if (message.job_id !== undefined && on.refused) on.refused(message);
      else problem(fromErrorMessage(message));
    },
    job_assign: (message) => on.message?.(message),
    job_cancel: (message) => on.message?.(message),
    job_result_ack: (message) => on.message?.(message),
    acks: (message) => on.message?.(message),
    deployments_changed: (message) => on.message?.(message),
    // Part of the handshake, or handled by the connection.
    node_challenge: () => {},
    node_register_ack: () => {},
    go_away: () => {},
  };

  return {
    get state() {
      return connection.state;
    },
    get registration() {
      return registration;
    },
    get lastContactMs() {
      return heartbeats.lastContactMs;
    },
    get members() {
      return members.current;
    },
    url: () => connection.instanceUrl,
    isGranted: (feature) => registration?.features?.includes(feature) ?? false,
    call: calls.call,
    start: connection.start,
    send,
    sendFrame: (frame) => connection.sendFrame(frame),
    heartbeat: heartbeats.beatNow,
    restart: connection.restart,
    async close() {
      const closed = connection.close();
      disconnected("the connection was closed");
      await closed;
    },
  };
}

/** A table, so that a new message of the protocol does not compile without a decision about it. */
type Receivers = {
  [T in ServerToNode["type"]]: (message: Extract<ServerToNode, { type: T }>) => void;
};
type Receiver = (message: ServerToNode) => void;

async function register(
  { send, expect }: Greeting<ServerToNode, NodeToServer>,
  { key, bootId, formerBootId, token, features, describe, running }: NodeConnectionOptions,
): Promise<NodeRegistration> {
  const { nonce, server_id } = await expect("node_challenge");
  const names = { address: key.address, boot_id: bootId };
  const text = challengeText({ nonce, server_id, ...names });
  const signature = await key.sign(new TextEncoder().encode(text));
  send({
    ...describe(),
    type: "node_register",
    protocol_version: PROTOCOL_VERSION,
    ...names,
    ...(formerBootId !== undefined && { former_boot_id: formerBootId }),
    signature: btoa(String.fromCharCode(...signature)),
    member_pages: true,
    ...(features && { features: [...features] }),
    member_batches: true,
    ...(token !== undefined && { token }),
    ...(running && { running: [...running()] }),
  });
  return expect("node_register_ack");
}

function sample({ running, resourceUsage, services, draining }: NodeConnectionOptions) {
  const usage = resourceUsage?.();
  const ready = services?.();
  return {
    running: [...(running?.() ?? [])],
    ...(usage && { resource_usage: usage }),
    ...(ready && { services: [...ready] }),
    ...(draining?.() && { draining: true }),
  };
}
