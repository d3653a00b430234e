import { createPublicKey, verify } from "node:crypto";
import { challengeText, decodeBase58 } from "@tenure/protocol";
import { describe, expect } from "vitest";
import { admit, BOOT_ID, challenge, member, NODES, test } from "../../testing/node-fixture.ts";
import type { NodeDescription } from "./node-connection.ts";

const JOB = { job_id: "00000000-0000-7000-8000-000000000001", attempt_id: 2 };

describe("a node that connects", () => {
  test("signs the challenge and registers its description", async ({ peer, join }) => {
    const described: NodeDescription = {
      name: "rack-7",
      version: "1.2.3",
      tags: { node_unit: true },
      labels: { zone: "b" },
      pools: ["gpu"],
      capacity: 4,
    };
    const node = join({ token: "SECRET", describe: () => described, running: () => [JOB] });
    const socket = await peer.accept();
    expect(socket.path).toBe("/ws/node");
    socket.send(challenge);

    const { signature, ...register } = await socket.receive();
    expect(register).toEqual({
      type: "node_register",
      protocol_version: 1,
      address: node.key.address,
      boot_id: BOOT_ID,
      token: "SECRET",
      member_pages: true,
      member_batches: true,
      running: [JOB],
      ...described,
    });
    expect(isSigned(node.key.address, String(signature))).toBe(true);
  });

  test("does not speak before it was asked", async ({ peer, join }) => {
    join();
    const socket = await peer.accept();
    socket.raw.ping();
    await new Promise((resolve) => socket.raw.once("pong", resolve));

    expect(socket.unread()).toEqual([]);
  });

  test("describes itself at every connect", async ({ peer, clock, join }) => {
    const described = { name: "rack-7", version: "1", tags: {}, labels: { disk: "small" } };
    const node = join({ describe: () => described });
    await admit(peer, node);
    described.labels.disk = "large";
    node.connection.restart("labels");
    clock.advance((await node.downs.next()).retryInMs);
    const socket = await peer.accept();
    socket.send(challenge);

    expect(await socket.receive()).toMatchObject({ labels: { disk: "large" } });
  });

  test("whose address another process has is refused and retries slowly", async ({
    peer,
    join,
  }) => {
    const node = join();
    const socket = await peer.accept();
    socket.send(challenge);
    await socket.receive();
    socket.send({
      type: "error",
      code: "NODE_ADDRESS_IN_USE",
      message: "in use",
      retryable: false,
    });
    socket.raw.close(4409, "not let in");

    const down = await node.downs.next();
    expect(down).toMatchObject({ kind: "replaced", wasReady: false, retryInMs: 22_500 });
    expect(down.error?.code).toBe("NODE_ADDRESS_IN_USE");
  });

  test("that is replaced later gets the same kind of loss", async ({ peer, join }) => {
    const node = join();
    (await admit(peer, node)).raw.close(4409, "a newer connection");

    expect(await node.downs.next()).toMatchObject({ kind: "replaced", wasReady: true });
  });

  test("knows its registration only while it is connected", async ({ peer, join }) => {
    const node = join();
    expect(node.connection.registration).toBeUndefined();
    const socket = await admit(peer, node, { epoch: 17 });
    expect(node.connection.registration?.epoch).toBe(17);
    socket.raw.terminate();
    await node.downs.next();
    expect(node.connection.registration).toBeUndefined();
  });
});

function isSigned(address: string, signature: string): boolean {
  const { nonce, server_id } = challenge;
  const text = challengeText({ nonce, server_id, address, boot_id: BOOT_ID });
  const x = Buffer.from(decodeBase58(address) as Uint8Array).toString("base64url");
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  return verify(null, Buffer.from(text), key, Buffer.from(signature, "base64"));
}

describe("heartbeats", () => {
  test("go out at once and then at the interval of the server, with what runs", async ({
    peer,
    clock,
    join,
  }) => {
    const usage = { cpu_percent: 12.5, memory_percent: 40, memory_mb: 900 };
    const node = join({
      running: () => [JOB],
      resourceUsage: () => usage,
      services: () => ["llama"],
    });
    const socket = await admit(peer, node, { heartbeat_interval_ms: 2_000 });
    clock.advance(1_999);
    clock.advance(1);
    const second = await socket.receive();
    clock.advance(2_000);
    const third = await socket.receive();

    const sent = {
      type: "node_heartbeat",
      running: [JOB],
      resource_usage: usage,
      services: ["llama"],
    };
    expect(second).toEqual({ ...sent, seq: 2 });
    expect(third).toEqual({ ...sent, seq: 3 });
    expect(socket.unread()).toEqual([]);
  });

  test("count as contact from their send time, even if the answer is late", async ({
    peer,
    clock,
    join,
  }) => {
    const node = join();
    const sentMs = clock.monotonicMs();
    const socket = await admit(peer, node, { epoch: 7 });
    expect(node.connection.lastContactMs).toBeUndefined();

    clock.advance(4_000);
    socket.send({ type: "node_heartbeat_ack", seq: 1, presence_ok: true, epoch: 7 });
    expect(await node.contacts.next()).toBe(sentMs);
    expect(node.connection.lastContactMs).toBe(sentMs);
  });

  test("do not count without Postgres, nor for another connection", async ({
    peer,
    clock,
    join,
  }) => {
    const node = join();
    const socket = await admit(peer, node, { epoch: 7 });
    clock.advance(5_000);
    socket.send(
      { type: "node_heartbeat_ack", seq: 1, presence_ok: false, epoch: 7 },
      { type: "node_heartbeat_ack", seq: 2, presence_ok: true, epoch: 6 },
      { type: "node_heartbeat_ack", seq: 99, presence_ok: true, epoch: 7 },
      { type: "node_control", command: "drain" },
    );
    await node.controls.next();

    expect(node.contacts.rest()).toEqual([]);
    expect(node.connection.lastContactMs).toBeUndefined();
  });

  test("never move contact back: an answer overtaken by a newer one has no effect", async ({
    peer,
    clock,
    join,
  }) => {
    const node = join();
    const socket = await admit(peer, node, { epoch: 7 });
    clock.advance(5_000);
    const secondMs = clock.monotonicMs();
    await socket.receive();
    const acked = { type: "node_heartbeat_ack", presence_ok: true, epoch: 7 };
    socket.send({ ...acked, seq: 2 }, { ...acked, seq: 1 });
    socket.send({ type: "node_control", command: "drain" });
    await node.controls.next();

    expect(node.contacts.rest()).toEqual([secondMs]);
  });

  test("stop with the connection, and contact stays what it was", async ({ peer, clock, join }) => {
    const node = join();
    const sentMs = clock.monotonicMs();
    const socket = await admit(peer, node, { epoch: 7 });
    socket.send({ type: "node_heartbeat_ack", seq: 1, presence_ok: true, epoch: 7 });
    await node.contacts.next();
    clock.advance(5_000);
    socket.raw.terminate();
    const { retryInMs } = await node.downs.next();
    clock.advance(retryInMs);
    const next = await admit(peer, node, { epoch: 8 });
    // The second heartbeat went out on the connection before this one, which cannot speak for it.
    next.send({ type: "node_heartbeat_ack", seq: 2, presence_ok: true, epoch: 8 });
    next.send({ type: "node_control", command: "resume" });
    await node.controls.next();
    expect(node.connection.lastContactMs).toBe(sentMs);

    clock.advance(5_000);
    node.connection.send({ type: "job_ack", ...JOB });
    expect(await next.receive()).toMatchObject({ type: "node_heartbeat", seq: 4 });
    expect(await next.receive()).toMatchObject({ type: "job_ack" });
  });

  test("are skipped when the node cannot be sampled", async ({ peer, clock, join }) => {
    let broken = false;
    const node = join({
      running() {
        if (broken) throw new Error("the table is locked");
        return [];
      },
    });
    const socket = await admit(peer, node);
    broken = true;
    clock.advance(5_000);
    expect((await node.problems.next()).message).toBe(
      "could not sample this node; skipped a heartbeat",
    );
    broken = false;
    clock.advance(5_000);

    expect(await socket.receive()).toMatchObject({ seq: 3 });
  });

  test("are not sent a thousand times a second, even if the server asks for it", async ({
    peer,
    clock,
    join,
  }) => {
    const node = join();
    const socket = await admit(peer, node, { heartbeat_interval_ms: 1 });
    clock.advance(100);
    node.connection.send({ type: "job_ack", ...JOB });
    const sent = [];
    for (let type: unknown; type !== "job_ack"; sent.push(type))
      ({ type } = await socket.receive());

    expect(sent).toHaveLength(6);
  });
});

describe("the members", () => {
  const init = { type: "host_event", event: "INIT", view: "ready" };
  const change = { type: "host_event", event: "TERMINAL_CHANGE", view: "ready" };

  test("are followed by events, and requested after a gap", async ({ peer, join }) => {
    const node = join();
    const socket = await admit(peer, node);
    socket.send({ ...init, seq: 10, members: [member("ada")] });
    expect([...(await node.members.next()).members.keys()]).toEqual([NODES.ada]);
    socket.send({ ...change, seq: 11, new: member("bob") });
    expect((await node.members.next()).members.size).toBe(2);

    socket.send({ ...change, seq: 13, old: member("ada") });
    expect((await node.members.next()).view).toBe("settling");
    const asked = await socket.receive();
    expect(asked).toMatchObject({ type: "request", method: "member.list", params: {} });

    const result = { seq: 13, view: "ready", members: [member("cyd")] };
    socket.send({ type: "response", id: asked.id, result });
    const view = await node.members.next();
    expect(view.view).toBe("ready");
    expect([...view.members.keys()]).toEqual([NODES.cyd]);
    expect(node.connection.members).toBe(view);
  });

  test("are not known to be complete while the connection is down", async ({ peer, join }) => {
    const node = join();
    const socket = await admit(peer, node);
    socket.send({ ...init, seq: 10, members: [member("ada")] });
    await node.members.next();
    socket.raw.terminate();

    expect(await node.members.next()).toMatchObject({ view: "settling" });
    expect(node.connection.members?.members.size).toBe(1);
  });
});

test("a node receives commands and work", async ({ peer, join }) => {
  const node = join();
  const socket = await admit(peer, node);
  const assign = {
    type: "job_assign",
    ...JOB,
    request_id: "r-1",
    pool: "gpu",
    payload: { any: ["thing"] },
    timeout_ms: 30_000,
  };
  socket.send({ type: "node_control", command: "drain" }, assign);
  socket.send({ type: "deployments_changed", revision: "7" });

  expect(await node.controls.next()).toBe("drain");
  expect(await node.messages.next()).toEqual(assign);
  expect(await node.messages.next()).toEqual({ type: "deployments_changed", revision: "7" });
});

test("an error of the server that does not end the connection is reported as a problem", async ({
  peer,
  join,
}) => {
  const node = join();
  (await admit(peer, node)).send({
    type: "error",
    code: "INVALID_MESSAGE",
    message: "unreadable",
    retryable: false,
  });

  expect(await node.problems.next()).toMatchObject({ code: "INVALID_MESSAGE" });
  expect(node.connection.state).toBe("ready");
});

test("a node that is closed leaves, and sends nothing more", async ({ peer, clock, join }) => {
  const node = join();
  const socket = await admit(peer, node);
  const call = node.connection.call("member.list", {});
  const outcome = call.catch((error: unknown) => error);
  await socket.receive();
  await node.connection.close();
  expect(clock.timers).toBe(0);
  clock.advance(1_000_000);

  expect(await outcome).toMatchObject({ code: "DEPENDENCY_DOWN" });
  expect(await socket.closed).toMatchObject({ code: 1000 });
  expect(socket.unread()).toEqual([]);
  expect(peer.unaccepted()).toBe(0);
});
