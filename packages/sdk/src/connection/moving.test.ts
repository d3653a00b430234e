import { CLOSE_CODES } from "@tenure/protocol";
import { describe, expect } from "vitest";
import { ack, meet, nextTick, test } from "../../testing/connection-fixture.ts";
import type { Readiness } from "./mover.ts";

// A connection to an instance that answers and cannot do its work, while another one can.

const ready: Readiness = { status: "ready", instanceId: "instance-2" };
const otherAck = { ...ack, instance_id: "instance-2" };
/** The hands of the clock are turned faster than a pong can travel. */
const limits = { pingEveryMs: 1_000_000 };
/** With chance at a half: the spread before the first check. */
const FIRST_CHECK_MS = 1_000;

/** Lets the promises of a check settle; nothing of it waits for the clock. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await nextTick();
}

describe("a connection in trouble", () => {
  test("moves to an instance that is ready, and keeps the old socket until it is registered there", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    const asked: string[] = [];
    const checkReady = async (url: string) => {
      asked.push(url);
      return ready;
    };
    const client = connect([peer.url, other.url], { checkReady, limits });
    const old = await meet(peer, client);
    client.connection.trouble("presence");
    clock.advance(FIRST_CHECK_MS);
    const socket = await other.accept();
    expect(asked).toEqual([`${other.url}/health/ready`, `${peer.url}/health/ready`]);

    expect(client.connection.state).toBe("ready");
    expect(client.connection.send({ type: "turn_finalize", reason: "manual" })).toBe("sent");
    expect(await old.receive()).toMatchObject({ type: "turn_finalize" });

    socket.send(otherAck);
    expect(await client.ready.next()).toMatchObject({ instance_id: "instance-2" });
    expect(await client.downs.next()).toMatchObject({ kind: "restarted", wasReady: true });
    expect(await old.closed).toMatchObject({ code: 1000 });
    expect(client.connection.state).toBe("ready");
    expect(client.connection.send({ type: "turn_finalize", reason: "timeout" })).toBe("sent");
    expect(await socket.receive()).toMatchObject({ reason: "timeout" });
    expect(client.states.rest()).not.toContain("waiting");
  });

  test("stays while no instance is ready", async ({ peer, other, clock, connect }) => {
    let checks = 0;
    const checkReady = async (): Promise<Readiness> => {
      checks += 1;
      return { status: "down" };
    };
    const client = connect([peer.url, other.url], { checkReady, limits });
    await meet(peer, client);
    for (let second = 0; second < 60; second++) {
      client.connection.trouble("presence");
      clock.advance(1_000);
      await settled();
    }
    expect(checks).toBeGreaterThan(10);
    expect(client.connection.state).toBe("ready");
    expect(client.downs.rest()).toEqual([]);
  });

  test("does not move to its own instance under another URL", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    const checkReady = async (): Promise<Readiness> => ({
      status: "ready",
      instanceId: ack.instance_id,
    });
    const client = connect([peer.url, other.url], { checkReady, limits });
    await meet(peer, client);
    client.connection.trouble("presence");
    clock.advance(FIRST_CHECK_MS);
    await settled();
    expect(other.unaccepted()).toBe(0);
  });

  test("waits for one more check when an outage of all instances ends", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    let readiness: Readiness = { status: "down" };
    const checkReady = async () => readiness;
    const client = connect([peer.url, other.url], { checkReady, limits });
    await meet(peer, client);
    client.connection.trouble("presence");
    clock.advance(FIRST_CHECK_MS);
    await settled();
    readiness = ready;
    clock.advance(5_000);
    await settled();
    expect(other.unaccepted()).toBe(0);
    clock.advance(5_000);
    await other.accept();
  });

  test("by refused calls alone is over when the own instance is ready", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    let checks = 0;
    const checkReady = async (url: string): Promise<Readiness> => {
      checks += 1;
      return url.startsWith(peer.url) ? { ...ready, instanceId: ack.instance_id } : ready;
    };
    const client = connect([peer.url, other.url], { checkReady, limits });
    await meet(peer, client);
    client.connection.trouble("stores");
    for (let second = 0; second < 30; second++) {
      clock.advance(1_000);
      await settled();
    }
    expect(checks).toBe(2);
    expect(other.unaccepted()).toBe(0);
  });

  test("that passes before the check has been answered moves nowhere", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    let answer: (readiness: Readiness) => void = () => {};
    const checkReady = () => new Promise<Readiness>((resolve) => (answer = resolve));
    const client = connect([peer.url, other.url], { checkReady, limits });
    await meet(peer, client);
    client.connection.trouble("presence");
    clock.advance(FIRST_CHECK_MS);
    client.connection.well("presence");
    answer(ready);
    await settled();
    expect(other.unaccepted()).toBe(0);
  });

  test("keeps its socket when the other instance does not take it, and tries again after 30 s", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    const client = connect([peer.url, other.url], { checkReady: async () => ready, limits });
    await meet(peer, client);
    client.connection.trouble("presence");
    clock.advance(FIRST_CHECK_MS);
    (await other.accept()).raw.terminate();
    await settled();
    clock.advance(29_000);
    await settled();
    expect(other.unaccepted()).toBe(0);
    expect(client.connection.state).toBe("ready");
    clock.advance(2_000);
    await other.accept();
    expect(client.downs.rest()).toEqual([]);
  });

  test("is not replaced by another process when its own new socket replaces the old one", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    const client = connect([peer.url, other.url], { checkReady: async () => ready, limits });
    const old = await meet(peer, client);
    client.connection.trouble("presence");
    clock.advance(FIRST_CHECK_MS);
    const socket = await other.accept();
    // The old instance learns of the new registration before its acknowledgement arrives.
    old.raw.close(CLOSE_CODES.REPLACED);
    expect(await client.downs.next()).toMatchObject({ kind: "restarted" });
    socket.send(otherAck);
    expect(await client.ready.next()).toMatchObject({ instance_id: "instance-2" });
    expect(client.connection.state).toBe("ready");
  });

  test("moves to an unchecked instance only when no other is known to be ready", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    const client = connect([peer.url, other.url], {
      checkReady: async () => ({ status: "unknown" }),
      limits,
    });
    await meet(peer, client);
    client.connection.trouble("stores");
    clock.advance(FIRST_CHECK_MS);
    const socket = await other.accept();
    socket.send(otherAck);
    expect(await client.ready.next()).toMatchObject({ instance_id: "instance-2" });
  });
});
