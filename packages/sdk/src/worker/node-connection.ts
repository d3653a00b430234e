import {
  challengeText,
  type ErrorMessage,
  fromErrorMessage,
  type JobAttempt,
  type NodeRegister,
  type NodeToServer,
  PROTOCOL_VERSION,
  type ResourceUsage,
  ServerToNode,
  type TenureError,
} from "@tenure/protocol";
import { systemClock } from "../clock.ts";
import {
  type Connection,
  type ConnectionState,
  type ConnectionTuning,
  createConnection,
  type Down,
} from "../connection/connection.ts";
import type { Greeting } from "../connection/handshake.ts";
import type { SendOutcome } from "../connection/link.ts";
import { createOutages } from "../connection/outages.ts";
import { createAnswers, type ServerCallHandlers } from "./answers.ts";
import { type Calls, createCalls } from "./calls.ts";
import { createHeartbeats } from "./heartbeats.ts";
import { createMembers, listMembers, type MembersView } from "./members.ts";

/** Who a node is. `sign` is a function, so that the key may stay where it is: in a file, a browser, a device. */
export interface NodeKey {
  /** The ed25519 public key in base58. */
  address: string;
  /** The ed25519 signature, 64 bytes. */
  sign(bytes: Uint8Array): Promise<Uint8Array>;
}

/** What a node says about itself when it registers. */
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
  | "running"
>;

export type NodeRegistration = Extract<ServerToNode, { type: "node_register_ack" }>;

/** Messages about work. All others are the connection's own business. */
export type NodeIncoming = Extract<
  ServerToNode,
  { type: "job_assign" | "job_cancel" | "job_result_ack" | "deployments_changed" }
>;
export type NodeOutgoing = Extract<
  NodeToServer,
  { type: "job_ack" | "job_started" | "job_progress" | "job_result" | "log_chunk" }
>;

export interface NodeEvents {
  ready?(registration: NodeRegistration): void;
  /** With `kind: "replaced"` another process has this address: whatever runs under it must stop. */
  down?(down: Down): void;
  state?(state: ConnectionState): void;
  message?(message: NodeIncoming): void;
  members?(view: MembersView): void;
  /** Presence is in Postgres; `lastContactMs` has moved. */
  contact?(lastContactMs: number): void;
  control?(command: "drain" | "resume"): void;
  /** An error about one job. Without this it is told as a problem. */
  refused?(message: ErrorMessage): void;
  /** Something is wrong that does not end the connection. */
  problem?(error: TenureError): void;
}

export interface NodeConnectionOptions extends ConnectionTuning {
  urls: readonly string[];
  key: NodeKey;
  /** Random per process: tells this process coming back from another one with the same key. */
  bootId: string;
  /** The process before this one, if this one knows that it is over. */
  formerBootId?: string | undefined;
  token?: string | undefined;
  /** Asked at every connect, so that `restart` is enough to tell a change. */
  describe(): NodeDescription;
  /** Attempts this node holds. Asked at every connect and for every heartbeat. */
  running?(): readonly JobAttempt[];
  resourceUsage?(): ResourceUsage | undefined;
  services?(): readonly string[] | undefined;
  /** It is about to leave and wants no more work. Told with every heartbeat. */
  draining?(): boolean;
  handlers?: ServerCallHandlers;
  /** For calls that name no time limit of their own. */
  callTimeoutMs?: number;
  on?: NodeEvents;
}

export interface NodeConnection extends Pick<Calls, "call"> {
  readonly state: ConnectionState;
  /** Of the connection that is ready now. */
  readonly registration: NodeRegistration | undefined;
  /** Monotonic send time of the newest heartbeat that reached Postgres; undefined before the first. */
  readonly lastContactMs: number | undefined;
  readonly members: MembersView | undefined;
  start(): void;
  send(message: NodeOutgoing): SendOutcome;
  /** The same, for a message that is JSON already. */
  sendFrame(frame: string): SendOutcome;
  /** A heartbeat now, for news that should not wait for the next one. */
  heartbeat(): void;
  /** Registers anew, with what `describe` says now. */
  restart(reason: string): void;
  /** The node leaves: to the server this is its LEAVE. */
  close(): Promise<void>;
}

/** A node's connection to the control plane: proves who it is, stays in contact, knows who else is there. */
export function createNodeConnection(options: NodeConnectionOptions): NodeConnection {
  const { on = {}, clock = systemClock, random = Math.random } = options;
  const problem = (error: TenureError) => on.problem?.(error);
  const send = (message: NodeToServer): SendOutcome => connection.send(message);
  let registration: NodeRegistration | undefined;

  const calls = createCalls({ clock, send, timeoutMs: options.callTimeoutMs });
  const answers = createAnswers({ handlers: options.handlers ?? {}, send, problem });
  const members = createMembers({
    clock,
    random,
    problem,
    list: () => listMembers(calls.call),
    changed: (view) => on.members?.(view),
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
        if ((value as { type?: unknown } | undefined)?.type === "host_event") members.missed();
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
    host_event: members.heard,
    response(message) {
      outages.heard(message.error?.code);
      calls.answered(message);
    },
    request: answers.asked,
    node_control: ({ command }) => on.control?.(command),
    error(message) {
      outages.heard(message.code);
      if (message.job_id !== undefined && on.refused) on.refused(message);
      else problem(fromErrorMessage(message));
    },
    job_assign: (message) => on.message?.(message),
    job_cancel: (message) => on.message?.(message),
    job_result_ack: (message) => on.message?.(message),
    deployments_changed: (message) => on.message?.(message),
    // Said once, before it was ready, or followed by the connection itself.
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

/** A table, so that a new message of the protocol does not compile until somebody has decided about it. */
type Receivers = {
  [T in ServerToNode["type"]]: (message: Extract<ServerToNode, { type: T }>) => void;
};
type Receiver = (message: ServerToNode) => void;

async function register(
  { send, expect }: Greeting<ServerToNode, NodeToServer>,
  { key, bootId, formerBootId, token, describe, running }: NodeConnectionOptions,
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
