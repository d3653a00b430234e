import { test as base, describe, expect } from "vitest";
import { type Arrivals, createArrivals } from "../../testing/arrivals.ts";
import { createManualClock, type ManualClock } from "../../testing/manual-clock.ts";
import { type Peer, type PeerSocket, startPeer } from "../../testing/peer.ts";
import type { Down } from "../connection/connection.ts";
import {
  createSessionConnection,
  type SessionConnection,
  type SessionConnectionOptions,
  type SessionIncoming,
  type SessionOrigin,
  type SessionResume,
} from "./session-connection.ts";

const resumeOf = (letter: string): SessionResume => ({
  session_id: letter.repeat(32),
  resume_token: `${letter}-way-back-to-the-session`,
});
const [first, second] = [resumeOf("a"), resumeOf("b")];
const ackOf = (resume: SessionResume) => ({
  type: "session_init_ack",
  ...resume,
  instance_id: "instance-1",
  protocol_version: 1,
});
const refusal = (code: string) => ({ type: "error", code, message: "no", retryable: false });

interface Client {
  connection: SessionConnection;
  origins: Arrivals<SessionOrigin>;
  resumes: Arrivals<SessionResume>;
  messages: Arrivals<SessionIncoming>;
  downs: Arrivals<Down>;
}

const test = base.extend<{
  clock: ManualClock;
  peer: Peer;
  open: (options?: Partial<SessionConnectionOptions>) => Client;
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
      const client = start({ clock, urls: [peer.url], ...options });
      clients.push(client);
      return client;
    });
    const closing = clients.map(({ connection }) => connection.detach());
    clock.advance(10_000); // Ends the wait for a peer that a failed test left silent.
    await Promise.all(closing);
  },
});

function start(options: SessionConnectionOptions): Client {
  const client = {
    origins: createArrivals<SessionOrigin>("session"),
    resumes: createArrivals<SessionResume>("way back"),
    messages: createArrivals<SessionIncoming>("message"),
    downs: createArrivals<Down>("loss"),
  };
  const connection = createSessionConnection({
    random: () => 0.5,
    on: {
      ready: (_ack, origin) => client.origins.push(origin),
      resume: client.resumes.push,
      message: client.messages.push,
      down: client.downs.push,
    },
    ...options,
  });
  connection.start();
  return { ...client, connection };
}

/** The server takes the client in; what the client had asked for is the answer. */
async function welcome(peer: Peer, resume: SessionResume) {
  const socket = await peer.accept();
  const asked = await socket.receive();
  socket.send(ackOf(resume));
  return { socket, asked };
}

async function drop(socket: PeerSocket, { downs }: Client, clock: ManualClock): Promise<void> {
  socket.raw.terminate();
  clock.advance((await downs.next()).retryInMs);
}

describe("a session", () => {
  test("sends session_init, and receives the credentials to resume", async ({ peer, open }) => {
    const client = open({ token: "SECRET", turnPauseMs: 2_000 });
    const { socket, asked } = await welcome(peer, first);

    expect(socket.path).toBe("/ws/session");
    expect(asked).toEqual({
      type: "session_init",
      protocol_version: 1,
      token: "SECRET",
      turn_pause_ms: 2_000,
    });
    expect(await client.origins.next()).toBe("new");
    expect(await client.resumes.next()).toEqual(first);
    expect(client.connection.resume).toEqual(first);
  });

  test("resumes after a lost connection", async ({ peer, clock, open }) => {
    const client = open();
    const { socket } = await welcome(peer, first);
    await client.origins.next();
    await drop(socket, client, clock);
    const { asked } = await welcome(peer, first);

    expect(asked).toMatchObject(first);
    expect(await client.origins.next()).toBe("resumed");
    expect(client.resumes.rest()).toEqual([first]);
  });

  test("resumes with stored credentials after a restart of the application", async ({
    peer,
    open,
  }) => {
    const client = open({ resume: first });
    const { asked } = await welcome(peer, { ...first, resume_token: "another-way-back-now" });

    expect(asked).toMatchObject(first);
    expect(await client.origins.next()).toBe("resumed");
    expect(await client.resumes.next()).toMatchObject({ resume_token: "another-way-back-now" });
  });

  test("receives messages about its jobs, and sends", async ({ peer, open }) => {
    const client = open();
    const { socket } = await welcome(peer, first);
    await client.origins.next();
    const error = { ...refusal("INBOX_FULL"), request_id: "r-1" };
    socket.send(error);
    expect(await client.messages.next()).toEqual(error);

    client.connection.send({ type: "turn_finalize", reason: "timeout" });
    expect(await socket.receive()).toEqual({ type: "turn_finalize", reason: "timeout" });
  });

  test("ends when it is closed", async ({ peer, open }) => {
    const client = open();
    const { socket } = await welcome(peer, first);
    await client.origins.next();
    await client.connection.close();

    expect(await socket.receive()).toEqual({ type: "session_close" });
  });

  test("can be resumed after detach", async ({ peer, open }) => {
    const client = open();
    const { socket } = await welcome(peer, first);
    await client.origins.next();
    await client.connection.detach();

    await socket.closed;
    expect(socket.unread()).toEqual([]);
    expect(client.connection.resume).toEqual(first);
  });
});

describe("a session that cannot be continued", () => {
  test.for([
    ["an error and 4401", "UNAUTHENTICATED", 4401],
    ["an error alone", "NOT_FOUND", undefined],
    ["a close code alone", undefined, 4401],
    ["a code that it cannot read", "INVALID_MESSAGE", 4400],
  ] as const)("by %s is replaced by a new one, soon", async ([, code, close], {
    peer,
    clock,
    open,
  }) => {
    const client = open({ resume: first });
    const refusing = await peer.accept();
    await refusing.receive();
    if (code) refusing.send(refusal(code));
    if (close) refusing.raw.close(close);

    const down = await client.downs.next();
    expect(down).toMatchObject({ kind: "resume_refused", retryInMs: 50 });
    clock.advance(50);
    const { asked } = await welcome(peer, second);
    expect(asked).not.toHaveProperty("session_id");
    expect(asked).not.toHaveProperty("resume_token");
    expect(await client.origins.next()).toBe("lost");
    expect(await client.resumes.next()).toEqual(second);
  });

  test("may be replaced by the server in the same answer", async ({ peer, open }) => {
    const client = open({ resume: first });
    await welcome(peer, second);

    expect(await client.origins.next()).toBe("lost");
    expect(client.connection.resume).toEqual(second);
  });

  test("is kept when the token was refused and not the credentials", async ({
    peer,
    clock,
    open,
  }) => {
    const client = open({ resume: first });
    const kinds: string[] = [];
    const offered: unknown[] = [];
    for (let round = 0; round < 4; round++) {
      const socket = await peer.accept();
      offered.push((await socket.receive()).session_id);
      socket.raw.close(4401);
      const down = await client.downs.next();
      kinds.push(down.kind);
      clock.advance(down.retryInMs);
    }

    expect(kinds).toEqual([
      "resume_refused",
      "unauthenticated",
      "resume_refused",
      "unauthenticated",
    ]);
    expect(offered).toEqual([first.session_id, undefined, first.session_id, undefined]);
    await welcome(peer, first);
    expect(await client.origins.next()).toBe("resumed");
  });

  test.for([
    ["a hiccup of the server", refusal("INTERNAL"), undefined],
    ["a store that is down", refusal("DEPENDENCY_DOWN"), 1013],
    ["a newer connection of it", undefined, 4409],
    ["the network", undefined, undefined],
  ] as const)("is not given up because of %s", async ([, error, close], { peer, clock, open }) => {
    const client = open({ resume: first });
    const socket = await peer.accept();
    await socket.receive();
    if (error) socket.send(error);
    if (close) socket.raw.close(close);
    if (!error && !close) socket.raw.terminate();
    clock.advance((await client.downs.next()).retryInMs);
    const { asked } = await welcome(peer, first);

    expect(asked).toMatchObject(first);
    expect(await client.origins.next()).toBe("resumed");
  });
});
