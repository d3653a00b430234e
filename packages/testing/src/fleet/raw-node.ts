import { randomUUID } from "node:crypto";
import {
  challengeText,
  type NodeRegister,
  type NodeToServer,
  ServerToNode,
} from "@tenure/protocol";
import WebSocket from "ws";
import { until } from "../until.ts";
import { createTestNodeKey } from "./node-key.ts";

export interface NodeKey {
  address: string;
  sign(text: string): string;
}

export function createNodeKey(): NodeKey {
  const { address, signBytes } = createTestNodeKey();
  return { address, sign: (text) => Buffer.from(signBytes(Buffer.from(text))).toString("base64") };
}

export type Received<Type extends ServerToNode["type"]> = Extract<ServerToNode, { type: Type }>;

/** A node's socket that sends what the test passes to it, also invalid messages. */
export interface RawNode {
  readonly key: NodeKey;
  readonly bootId: string;
  readonly socket: WebSocket;
  readonly received: ServerToNode[];
  readonly closed: Promise<{ code: number; reason: string }>;
  send(message: NodeToServer | Record<string, unknown> | string): void;
  /** Waits for a message, also one that came before the call. */
  receive<Type extends ServerToNode["type"]>(
    type: Type,
    fits?: (message: Received<Type>) => boolean,
  ): Promise<Received<Type>>;
  register(changes?: Partial<NodeRegister>): Promise<Received<"node_register_ack">>;
  heartbeat(seq: number): Promise<Received<"node_heartbeat_ack">>;
  /** Sends a `request` and returns its `response`. */
  call(method: string, params: object): Promise<Received<"response">>;
  /** The number of messages of this type received so far. */
  count(type: ServerToNode["type"]): number;
  close(): Promise<void>;
}

export interface RawNodeOptions {
  url: string;
  key?: NodeKey;
  bootId?: string;
  headers?: Record<string, string>;
}

export async function connectRawNode({
  url,
  key = createNodeKey(),
  bootId = randomUUID(),
  headers = {},
}: RawNodeOptions): Promise<RawNode> {
  const socket = new WebSocket(`${url.replace("http", "ws")}/ws/node`, { headers });
  const received: ServerToNode[] = [];
  socket.on("message", (data) => received.push(ServerToNode.parse(JSON.parse(data.toString()))));
  socket.on("error", () => {});
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    socket.once("close", (code, reason) => resolve({ code, reason: reason.toString() }));
  });
  await new Promise<void>((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });

  const send: RawNode["send"] = (message) =>
    socket.send(typeof message === "string" ? message : JSON.stringify(message));
  const receive: RawNode["receive"] = (type, fits = () => true) =>
    until(
      () => received.find((message) => message.type === type && fits(message as never)) as never,
      {
        what: `${type} from the server; last received ${JSON.stringify(received.slice(-5))}`,
      },
    );

  async function register(
    changes: Partial<NodeRegister> = {},
  ): Promise<Received<"node_register_ack">> {
    const { nonce, server_id } = await receive("node_challenge");
    const address = changes.address ?? key.address;
    const boot_id = changes.boot_id ?? bootId;
    const signature = key.sign(challengeText({ server_id, nonce, address, boot_id }));
    send({ ...registration({ address, boot_id, signature }), ...changes });
    return receive("node_register_ack");
  }

  let lastCall = 0;
  return {
    key,
    bootId,
    socket,
    received,
    closed,
    send,
    receive,
    register,
    async heartbeat(seq) {
      send({ type: "node_heartbeat", seq, running: [] });
      return receive("node_heartbeat_ack", (ack) => ack.seq === seq);
    },
    call(method, params) {
      const id = `call-${++lastCall}`;
      send({ type: "request", id, method, params });
      return receive("response", (reply) => reply.id === id);
    },
    count: (type) => received.filter((message) => message.type === type).length,
    async close() {
      socket.close();
      await closed;
    },
  };
}

export function registration(identity: {
  address: string;
  boot_id: string;
  signature: string;
}): NodeRegister {
  return {
    type: "node_register",
    protocol_version: 1,
    ...identity,
    name: "test node",
    version: "0.0.0",
    tags: { node_unit: true },
  };
}
