import { generateKeyPairSync, sign } from "node:crypto";
import { encodeBase58, type Member, type TenureError } from "@tenure/protocol";
import { test as base } from "vitest";
import type { ConnectionState, Down } from "../src/connection/connection.ts";
import type { MembersView } from "../src/worker/members.ts";
import {
  createNodeConnection,
  type NodeConnection,
  type NodeConnectionOptions,
  type NodeIncoming,
  type NodeRegistration,
} from "../src/worker/node-connection.ts";
import type { NodeKey } from "../src/worker/node-key.ts";
import { type Arrivals, createArrivals } from "./arrivals.ts";
import { createManualClock, type ManualClock } from "./manual-clock.ts";
import { type Peer, type PeerSocket, startPeer } from "./peer.ts";

export const challenge = {
  type: "node_challenge",
  nonce: "bm9uY2UtMTIzNDU2Nzg",
  server_id: "instance-1",
};
export const BOOT_ID = "018f2b5e-7c3a-7000-8000-000000000001";

export function createNodeKey(): NodeKey {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const raw = publicKey.export({ format: "der", type: "spki" }).subarray(-32);
  return { address: encodeBase58(raw), sign: async (bytes) => sign(null, bytes, privateKey) };
}

const [{ address: ada }, { address: bob }, { address: cyd }] = [
  createNodeKey(),
  createNodeKey(),
  createNodeKey(),
];
export const NODES = { ada, bob, cyd };

export function member(name: keyof typeof NODES, epoch = 1): Member {
  return {
    address: NODES[name],
    name,
    instance_id: "instance-1",
    epoch,
    claim_policy: "deployment_count",
    labels: {},
    trusted_package_regexp: "",
    custom_command: false,
    draining: false,
    tags: { node_unit: true },
    joined_at: "2026-01-31T12:00:00.000Z",
  };
}

export interface Node {
  connection: NodeConnection;
  key: NodeKey;
  ready: Arrivals<NodeRegistration>;
  messages: Arrivals<NodeIncoming>;
  downs: Arrivals<Down>;
  problems: Arrivals<TenureError>;
  members: Arrivals<MembersView>;
  contacts: Arrivals<number>;
  controls: Arrivals<"drain" | "resume">;
  states: Arrivals<ConnectionState>;
}

export interface NodeFixtures {
  clock: ManualClock;
  peer: Peer;
  join: (options?: Partial<NodeConnectionOptions>) => Node;
}

export const test = base.extend<NodeFixtures>({
  // biome-ignore-start lint/correctness/noEmptyPattern: vitest reads the pattern to see what is needed
  clock: async ({}, use) => use(createManualClock()),
  peer: async ({}, use) => {
    const peer = await startPeer();
    await use(peer);
    await peer.close();
  },
  // biome-ignore-end lint/correctness/noEmptyPattern: as above
  join: async ({ clock, peer }, use) => {
    const nodes: Node[] = [];
    await use((options) => {
      const node = start({ clock, urls: [peer.url], ...options });
      nodes.push(node);
      return node;
    });
    const closing = nodes.map(({ connection }) => connection.close());
    clock.advance(10_000); // Ends the wait for a peer that a failed test left silent.
    await Promise.all(closing);
  },
});

function start(
  options: Partial<NodeConnectionOptions> & Pick<NodeConnectionOptions, "urls">,
): Node {
  const key = options.key ?? createNodeKey();
  const node = {
    key,
    ready: createArrivals<NodeRegistration>("registration"),
    messages: createArrivals<NodeIncoming>("message"),
    downs: createArrivals<Down>("loss"),
    problems: createArrivals<TenureError>("problem"),
    members: createArrivals<MembersView>("members view"),
    contacts: createArrivals<number>("contact"),
    controls: createArrivals<"drain" | "resume">("command"),
    states: createArrivals<ConnectionState>("state"),
  };
  const connection = createNodeConnection({
    bootId: BOOT_ID,
    random: () => 0.5,
    // No pings: here time passes without real pongs.
    limits: { pingEveryMs: 10_000_000 },
    describe: () => ({ name: "rack-7", version: "1.0.0", tags: { node_unit: true } }),
    on: {
      ready: node.ready.push,
      message: node.messages.push,
      down: node.downs.push,
      problem: node.problems.push,
      members: node.members.push,
      contact: node.contacts.push,
      control: node.controls.push,
      state: node.states.push,
    },
    ...options,
    key,
  });
  connection.start();
  return { ...node, connection };
}

/** The server's part of the handshake, up to the first heartbeat. */
export async function admit(
  peer: Peer,
  node: Node,
  ack: Partial<NodeRegistration> = {},
): Promise<PeerSocket> {
  const socket = await peer.accept();
  socket.send(challenge);
  await socket.receive();
  socket.send({
    type: "node_register_ack",
    node_id: node.key.address,
    instance_id: "instance-1",
    epoch: 1,
    heartbeat_interval_ms: 5_000,
    protocol_version: 1,
    ...ack,
  });
  await node.ready.next();
  await socket.receive();
  return socket;
}
