import { describe, expect } from "vitest";
import { openSocket } from "#websocket";
import { type Arrivals, createArrivals } from "../../testing/arrivals.ts";
import { ack, meet, test } from "../../testing/connection-fixture.ts";
import { startSilentServer } from "../../testing/silent-server.ts";
import type { OpenSocket } from "./socket.ts";

describe("a peer that is lost without a close", () => {
  test("is noticed 10 s after the last sign of life", async ({ clock, connect }) => {
    const server = await startSilentServer([ack]);
    const client = connect([server.url]);
    await client.ready.next();

    clock.advance(9_999);
    expect(client.connection.state).toBe("ready");
    clock.advance(1);
    expect(await client.downs.next()).toMatchObject({
      kind: "silent",
      wasReady: true,
      reason: "nothing received for 10000 ms",
    });
    // It had been asked before it was given up.
    expect(await server.pings()).toBe(2);
    await server.close();
  });

  test("is not confused with one that only answers pings", async ({ peer, clock, connect }) => {
    const { openSocket, heartbeats } = watchHeartbeats();
    const client = connect([peer.url], { openSocket });
    await meet(peer, client);
    await heartbeats.next();
    for (let ping = 0; ping < 5; ping++) {
      clock.advance(5_000);
      await heartbeats.next();
    }

    expect(client.connection.state).toBe("ready");
  });

  test("is not confused with one that pings", async ({ peer, clock, connect }) => {
    const { openSocket, heartbeats } = watchHeartbeats();
    const client = connect([peer.url], { openSocket, limits: { pingEveryMs: 4_000 } });
    const socket = await meet(peer, client);
    await heartbeats.next();
    clock.advance(3_999);
    socket.raw.ping();
    await heartbeats.next();
    clock.advance(4_001);
    expect(client.connection.state).toBe("ready");
  });
});

/** Node's own sockets, and a word to the test when a ping or pong has come in. */
function watchHeartbeats(): { openSocket: OpenSocket; heartbeats: Arrivals<void> } {
  const heartbeats = createArrivals<void>("ping or pong");
  return {
    heartbeats,
    openSocket: (url, options) =>
      openSocket(url, {
        ...options,
        on: {
          ...options.on,
          heartbeat() {
            options.on.heartbeat();
            heartbeats.push();
          },
        },
      }),
  };
}
