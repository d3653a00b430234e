import { randomUUID } from "node:crypto";
import { challengeText } from "@tenure/protocol";
import { createTestNodeKey } from "@tenure/testing/fleet/node-key";
import { until } from "@tenure/testing/until";
import { WebSocket } from "ws";

type Message = Record<string, unknown> & { type: string };

/** A node's socket that says what it likes. */
export interface RawNode {
  readonly address: string;
  readonly socket: WebSocket;
  readonly received: Message[];
  send(message: Record<string, unknown>): void;
  /** Sends a `request` and gives its `response`. */
  call(method: string, params: unknown): Promise<Message>;
  /** Sends a heartbeat and gives its acknowledgement. */
  beat(): Promise<Message>;
  /** How many messages of this type came. */
  count(type: string): number;
}

/** Connects with this token, proves its key and registers; by default as a node-unit. */
export async function connectNode(
  url: string,
  token: string,
  registration: Record<string, unknown> = {},
): Promise<RawNode> {
  const key = createTestNodeKey();
  const socket = new WebSocket(`${url.replace("http", "ws")}/ws/node`);
  const received: Message[] = [];
  let lastId = 0;
  socket.on("message", (data) => received.push(JSON.parse(data.toString())));
  socket.on("error", () => {});

  const send = (message: Record<string, unknown>) => socket.send(JSON.stringify(message));
  const find = (what: string, fits: (message: Message) => boolean): Promise<Message> =>
    until(() => received.find(fits), { what });
  const named = (type: string) => find(type, (message) => message.type === type);

  const { nonce, server_id } = await named("node_challenge");
  const boot_id = randomUUID();
  const identity = { server_id, nonce, address: key.address, boot_id };
  const text = challengeText(identity as Parameters<typeof challengeText>[0]);
  const signature = Buffer.from(key.signBytes(Buffer.from(text))).toString("base64");
  send({
    ...{ type: "node_register", protocol_version: 1, address: key.address, boot_id, signature },
    ...{ token, name: "raw", version: "0.0.0", tags: { node_unit: true }, ...registration },
  });
  await named("node_register_ack");

  return {
    address: key.address,
    socket,
    received,
    send,
    call(method, params) {
      const id = `call-${++lastId}`;
      send({ type: "request", id, method, params });
      return find(`answer to ${method}`, (one) => one.type === "response" && one.id === id);
    },
    beat() {
      const seq = ++lastId;
      send({ type: "node_heartbeat", seq, running: [] });
      return find("heartbeat ack", (one) => one.type === "node_heartbeat_ack" && one.seq === seq);
    },
    count: (type) => received.filter((message) => message.type === type).length,
  };
}
