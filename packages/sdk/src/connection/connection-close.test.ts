import { describe, expect } from "vitest";
import { ack, deadUrl, meet, nextTick, test } from "../../testing/connection-fixture.ts";
import { startSilentServer } from "../../testing/silent-server.ts";
import type { ConnectionState, Down } from "./connection.ts";

describe("close", () => {
  test("sends its last message, and never connects again", async ({ peer, clock, connect }) => {
    const client = connect([peer.url]);
    const socket = await meet(peer, client);
    await client.connection.close({ type: "session_close" });

    expect(await socket.receive()).toEqual({ type: "session_close" });
    expect(await socket.closed).toMatchObject({ code: 1000 });
    clock.advance(1_000_000);
    expect(peer.unaccepted()).toBe(0);
    expect(client.connection.state).toBe("closed");
    expect(client.downs.rest()).toEqual([]);
    client.connection.start();
    expect(client.connection.state).toBe("closed");
  });

  test("cancels the next attempt", async ({ clock, connect }) => {
    const client = connect([await deadUrl()]);
    await client.downs.next();
    await client.connection.close();
    clock.advance(1_000_000);

    expect(client.states.rest()).toEqual(["connecting", "waiting", "closed"]);
  });

  test("cancels an attempt that hangs", async ({ peer, connect }) => {
    const client = connect([peer.url]);
    await client.connection.close();

    expect(client.states.rest()).toEqual(["connecting", "closed"]);
  });

  test("works from inside an event", async ({ peer, clock, connect }) => {
    const states: ConnectionState[] = [];
    const downs: Down[] = [];
    const client = connect([peer.url], {
      on: {
        state(state) {
          states.push(state);
          if (state === "waiting") void client.connection.close();
        },
        down: (down) => downs.push(down),
      },
    });
    (await peer.accept()).raw.terminate();
    while (client.connection.state !== "closed") await nextTick();
    clock.advance(1_000_000);

    expect(states).toEqual(["connecting", "handshake", "waiting", "closed"]);
    expect(downs).toEqual([]);
  });

  test("does not wait for a peer that does not answer", async ({ clock, connect }) => {
    const server = await startSilentServer([ack]);
    const client = connect([server.url]);
    await client.ready.next();
    const closed = client.connection.close();
    clock.advance(4_000);

    await closed;
    await server.close();
  });
});

test("restart leaves for a new connection at once", async ({ peer, clock, connect }) => {
  const client = connect([peer.url]);
  const socket = await meet(peer, client);
  client.connection.restart("our labels have changed");

  expect(await client.downs.next()).toMatchObject({ kind: "restarted", retryInMs: 50 });
  expect(await socket.closed).toMatchObject({ code: 1000 });
  clock.advance(50);
  await meet(peer, client);
});
