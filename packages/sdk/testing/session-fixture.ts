import type { TenureError } from "@tenure/protocol";
import { test as base } from "vitest";
import type { Down } from "../src/connection/connection.ts";
import { Session, type SessionOptions } from "../src/session/session.ts";
import type { SessionOrigin } from "../src/session/session-connection.ts";
import { type Arrivals, createArrivals } from "./arrivals.ts";
import { createManualClock, type ManualClock } from "./manual-clock.ts";
import { type Peer, type PeerSocket, startPeer } from "./peer.ts";

export const RESUME = {
  session_id: "0123456789abcdef0123456789abcdef",
  resume_token: "a-way-back-into-it",
};
export const JOBS = ["one", "two", "three"].map(
  (_, index) => `00000000-0000-7000-8000-00000000000${index + 1}`,
) as [string, string, string];

export interface Client {
  session: Session;
  ready: Arrivals<SessionOrigin>;
  downs: Arrivals<Down>;
  problems: Arrivals<TenureError>;
}

export const test = base.extend<{
  clock: ManualClock;
  peer: Peer;
  open: (options?: Partial<SessionOptions>) => Client;
}>({
  // biome-ignore-start lint/correctness/noEmptyPattern: vitest reads the pattern to see what is needed
  clock: async ({}, use) => use(createManualClock()),
  peer: async ({}, use) => {
    const peer = await startPeer();
    await use(peer);
    await peer.close();
  },
  // biome-ignore-end lint/correctness/noEmptyPattern: as above
  open: async ({ clock, peer }, use) => {
    const clients: Client[] = [];
    await use((options) => {
      const client = start({ clock, url: peer.url, ...options });
      clients.push(client);
      return client;
    });
    const closing = clients.map(({ session }) => session.close());
    clock.advance(10_000); // Ends the wait for a peer that a failed test left silent.
    await Promise.all(closing);
  },
});

function start(options: SessionOptions): Client {
  const client = {
    ready: createArrivals<SessionOrigin>("session"),
    downs: createArrivals<Down>("loss"),
    problems: createArrivals<TenureError>("problem"),
  };
  const session = new Session({
    random: () => 0.5,
    // Whether the peer lives is another test's matter; here time may pass without real pongs.
    limits: { pingEveryMs: 10_000_000 },
    on: {
      ready: (_ack, origin) => client.ready.push(origin),
      down: client.downs.push,
      problem: client.problems.push,
    },
    ...options,
  });
  return { ...client, session };
}

/** The server takes the client in. */
export async function welcome(
  peer: Peer,
  client: Client,
  features?: string[],
): Promise<PeerSocket> {
  const socket = await peer.accept();
  await socket.receive();
  socket.send({
    type: "session_init_ack",
    ...RESUME,
    instance_id: "instance-1",
    protocol_version: 1,
    ...(features && { features }),
  });
  await client.ready.next();
  return socket;
}

/** The connection breaks, and the client comes back. */
export async function reconnect(
  peer: Peer,
  client: Client,
  { socket, clock }: { socket: PeerSocket; clock: ManualClock },
): Promise<PeerSocket> {
  socket.raw.terminate();
  clock.advance((await client.downs.next()).retryInMs);
  return welcome(peer, client);
}

export const accepted = (request_id: unknown, job_id: string, more: object = {}) => ({
  type: "job_accepted",
  request_id,
  job_id,
  duplicate: false,
  ...more,
});

export const succeeded = (request_id: unknown, job_id: string, body: unknown = "done") => ({
  type: "job_result",
  request_id,
  job_id,
  attempt_id: 1,
  success: true,
  outcome: "succeeded",
  body,
});

export const refusal = (code: string, fields: object) => ({
  type: "error",
  code,
  message: code.toLowerCase(),
  retryable: false,
  ...fields,
});
