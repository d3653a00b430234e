import { ServerToSession, type SessionToServer, type TenureError } from "@tenure/protocol";
import { test as base } from "vitest";
import type {
  Connection,
  ConnectionOptions,
  ConnectionState,
  Down,
} from "../src/connection/connection.ts";
import { createConnection } from "../src/connection/reconnecting.ts";
import { type Arrivals, createArrivals } from "./arrivals.ts";
import { createManualClock, type ManualClock } from "./manual-clock.ts";
import { type Peer, type PeerSocket, startPeer } from "./peer.ts";

export type Ack = Extract<ServerToSession, { type: "session_init_ack" }>;
export const ack: Ack = {
  type: "session_init_ack",
  session_id: "0123456789abcdef0123456789abcdef",
  resume_token: "a-way-back-into-it",
  instance_id: "instance-1",
  protocol_version: 1,
};
export const finalized = (turn: number) => ({
  type: "turn_finalized",
  turn_id: `00000000-0000-7000-8000-${String(turn).padStart(12, "0")}`,
  reason: "manual",
});
export const goAway = (fields: object) => ({
  type: "go_away",
  reason: "it stops",
  retry_after_ms: 0,
  ...fields,
});

export interface Client {
  connection: Connection<SessionToServer>;
  ready: Arrivals<Ack>;
  messages: Arrivals<ServerToSession>;
  downs: Arrivals<Down>;
  problems: Arrivals<TenureError>;
  states: Arrivals<ConnectionState>;
}
type Options = Partial<ConnectionOptions<ServerToSession, SessionToServer, Ack>>;

export const test = base.extend<{
  clock: ManualClock;
  peer: Peer;
  other: Peer;
  connect: (urls: string[], options?: Options) => Client;
}>({
  // biome-ignore-start lint/correctness/noEmptyPattern: vitest reads the pattern to see what is needed
  clock: async ({}, use) => use(createManualClock()),
  peer: async ({}, use) => withPeer(use),
  other: async ({}, use) => withPeer(use),
  // biome-ignore-end lint/correctness/noEmptyPattern: as above
  connect: async ({ clock }, use) => {
    const connections: Connection<SessionToServer>[] = [];
    await use((urls, options) => {
      const client = start(clock, urls, options);
      connections.push(client.connection);
      return client;
    });
    const closing = connections.map((connection) => connection.close());
    clock.advance(10_000); // Ends the wait for a peer that a failed test left silent.
    await Promise.all(closing);
  },
});

async function withPeer(use: (peer: Peer) => Promise<void>): Promise<void> {
  const peer = await startPeer();
  await use(peer);
  await peer.close();
}

function start(clock: ManualClock, urls: string[], options: Options = {}): Client {
  const ready = createArrivals<Ack>("ready");
  const messages = createArrivals<ServerToSession>("message");
  const downs = createArrivals<Down>("loss");
  const problems = createArrivals<TenureError>("problem");
  const states = createArrivals<ConnectionState>("state");
  const connection = createConnection<ServerToSession, SessionToServer, Ack>({
    urls,
    path: "/ws/session",
    incoming: ServerToSession,
    handshake: ({ expect }) => expect("session_init_ack"),
    clock,
    random: () => 0.5,
    on: {
      ready: ready.push,
      message: messages.push,
      down: downs.push,
      problem: problems.push,
      state: states.push,
    },
    ...options,
  });
  connection.start();
  return { connection, ready, messages, downs, problems, states };
}

/** A client that has connected to `peer` and is ready. */
export async function meet(peer: Peer, client: Client): Promise<PeerSocket> {
  const socket = await peer.accept();
  socket.send(ack);
  await client.ready.next();
  return socket;
}

export async function deadUrl(): Promise<string> {
  const peer = await startPeer();
  await peer.close();
  return peer.url;
}

/** Waits for one tick of the event loop, in which delivered frames are handled. */
export const nextTick = () => new Promise((resolve) => setImmediate(resolve));
