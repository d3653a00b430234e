import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { CLOSE_CODES } from "@tenure/protocol";
import { describe, expect } from "vitest";
import { ack, deadUrl, finalized, goAway, meet, test } from "../../testing/connection-fixture.ts";

describe("a connection", () => {
  test("is ready after the handshake, and then receives the messages that followed it", async ({
    peer,
    connect,
  }) => {
    const { connection, ready, messages, states } = connect([peer.url]);
    const socket = await peer.accept();
    socket.send(finalized(1), ack, finalized(2));

    expect(await ready.next()).toEqual(ack);
    expect(await messages.next()).toEqual(finalized(1));
    expect(await messages.next()).toEqual(finalized(2));
    expect(states.rest()).toEqual(["connecting", "handshake", "ready"]);
    expect(socket.path).toBe("/ws/session");

    expect(connection.send({ type: "turn_finalize", reason: "manual" })).toBe("sent");
    expect(await socket.receive()).toEqual({ type: "turn_finalize", reason: "manual" });
  });

  test("goes to the next URL when one does not answer", async ({ peer, clock, connect }) => {
    const dead = await deadUrl();
    const client = connect([dead, peer.url]);

    const down = await client.downs.next();
    expect(down).toMatchObject({ kind: "unreachable", wasReady: false, retryInMs: 50 });
    expect(down.url).toBe(`${dead.replace("http", "ws")}/ws/session`);
    expect(down.error).toBeUndefined();

    clock.advance(50);
    await meet(peer, client);
    expect(client.connection.state).toBe("ready");
  });

  test("reconnects to the other instance after its server was lost", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    const client = connect([peer.url, other.url]);
    await meet(peer, client);
    await peer.close();

    const down = await client.downs.next();
    expect(down).toMatchObject({ kind: "lost", code: 1006, wasReady: true });
    clock.advance(down.retryInMs);
    await meet(other, client);
  });

  test("waits longer and longer, up to half the cap when chance is a half", async ({
    clock,
    connect,
  }) => {
    const { downs } = connect([await deadUrl()]);
    const waits: number[] = [];
    for (let attempt = 0; attempt < 9; attempt++) {
      const { retryInMs } = await downs.next();
      waits.push(retryInMs);
      clock.advance(retryInMs);
    }

    expect(waits).toEqual([50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
  });

  test("does not retry early", async ({ clock, connect, peer }) => {
    const client = connect([await deadUrl(), peer.url]);
    const { retryInMs } = await client.downs.next();

    clock.advance(retryInMs - 1);
    expect(client.connection.state).toBe("waiting");
    clock.advance(1);
    expect(client.connection.state).toBe("connecting");
  });

  test("gives up a server that opens and never gets ready", async ({ peer, clock, connect }) => {
    const { downs, states } = connect([peer.url]);
    await peer.accept();
    while ((await states.next()) !== "handshake");

    clock.advance(9_999);
    expect(downs.rest()).toEqual([]);
    clock.advance(1);
    expect(await downs.next()).toMatchObject({ kind: "late", wasReady: false });
  });

  test("backs off from a server that always drops it when it is ready", async ({
    peer,
    clock,
    connect,
  }) => {
    const client = connect([peer.url]);
    const waits: number[] = [];
    for (let round = 0; round < 4; round++) {
      (await meet(peer, client)).raw.terminate();
      const { retryInMs } = await client.downs.next();
      waits.push(retryInMs);
      clock.advance(retryInMs);
    }

    expect(waits).toEqual([50, 100, 200, 400]);
  });

  test("starts over with short waits after a connection that held", async ({
    peer,
    clock,
    connect,
  }) => {
    const client = connect([peer.url], { limits: { pingEveryMs: 1_000_000 } });
    (await meet(peer, client)).raw.terminate();
    clock.advance((await client.downs.next()).retryInMs);
    const socket = await meet(peer, client);
    clock.advance(10_000);
    socket.raw.terminate();

    expect((await client.downs.next()).retryInMs).toBe(50);
  });
});

describe("an instance that stops", () => {
  test("is left at the time it named, for the instances it named, without growing back-off", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    const client = connect([peer.url]);
    const socket = await meet(peer, client);
    socket.send(goAway({ retry_after_ms: 700, urls: [other.url] }), finalized(1));
    await client.messages.next();

    clock.advance(699);
    expect(client.connection.send({ type: "turn_finalize", reason: "manual" })).toBe("sent");
    clock.advance(1);
    expect(await client.downs.next()).toMatchObject({
      kind: "stopping",
      reason: "it stops",
      wasReady: true,
      retryInMs: 50,
    });
    expect(await socket.closed).toMatchObject({ code: 1000 });

    clock.advance(50);
    await meet(other, client);
  });

  test("is avoided for as long as it asked, also when it closes at once", async ({
    peer,
    other,
    clock,
    connect,
  }) => {
    const client = connect([peer.url]);
    const socket = await meet(peer, client);
    socket.send(goAway({ retry_after_ms: 500, urls: [other.url] }));
    socket.raw.close(CLOSE_CODES.INSTANCE_STOPPING, "this instance is stopping");

    const down = await client.downs.next();
    expect(down).toMatchObject({ kind: "stopping", code: 1012, retryInMs: 750 });
    clock.advance(750);
    await meet(other, client);
  });

  test("cannot send its clients away for a month", async ({ peer, connect }) => {
    const client = connect([peer.url]);
    const socket = await meet(peer, client);
    socket.send(goAway({ retry_after_ms: 2_147_483_647 }));
    socket.raw.close(CLOSE_CODES.INSTANCE_STOPPING);

    expect((await client.downs.next()).retryInMs).toBe(305_000);
  });

  test("before it was ready counts as a failure", async ({ peer, clock, connect }) => {
    const client = connect([peer.url]);
    const waits: number[] = [];
    for (let round = 0; round < 3; round++) {
      (await peer.accept()).send(goAway({}));
      const { kind, retryInMs } = await client.downs.next();
      expect(kind).toBe("stopping");
      waits.push(retryInMs);
      clock.advance(retryInMs);
    }

    expect(waits).toEqual([50, 100, 200]);
  });
});

describe("a close code", () => {
  test.for([
    [1012, "stopping", 50, undefined],
    [1013, "too_slow", 50, undefined],
    [4400, "bad_frames", 50, "INVALID_MESSAGE"],
    [4401, "unauthenticated", 22_500, "UNAUTHENTICATED"],
    [4403, "forbidden", 22_500, "FORBIDDEN"],
    [4409, "replaced", 22_500, "CONFLICT"],
  ] as const)("of %i is %s: the next attempt is in %i ms", async (row, { peer, connect }) => {
    const [code, kind, retryInMs, error] = row;
    const client = connect([peer.url]);
    (await meet(peer, client)).raw.close(code);

    const down = await client.downs.next();
    expect(down).toMatchObject({ kind, code, retryInMs });
    expect(down.error?.code).toBe(error);
  });

  test.for([
    [1012, 50, 100],
    [1013, 50, 100],
    [4401, 22_500, 22_500],
    [4409, 22_500, 22_500],
  ] as const)("of %i before it is ready waits %i ms, and then %i ms", async ([code, ...expected], {
    peer,
    clock,
    connect,
  }) => {
    const client = connect([peer.url]);
    const waits: number[] = [];
    for (let round = 0; round < 2; round++) {
      (await peer.accept()).raw.close(code);
      const { retryInMs } = await client.downs.next();
      waits.push(retryInMs);
      clock.advance(retryInMs);
    }

    expect(waits).toEqual(expected);
  });
});

describe("an error before it is ready", () => {
  test("is the reason of the failure, and its wait is kept", async ({ peer, connect }) => {
    const client = connect([peer.url]);
    const socket = await peer.accept();
    socket.send({
      type: "error",
      code: "RATE_LIMITED",
      message: "too many",
      retryable: true,
      retry_after_ms: 4_000,
    });

    const down = await client.downs.next();
    expect(down).toMatchObject({ kind: "handshake", retryInMs: 6_000, reason: "too many" });
    expect(down.error?.code).toBe("RATE_LIMITED");
    await socket.closed;
  });

  test("wins over the close code that follows", async ({ peer, connect }) => {
    const client = connect([peer.url]);
    const socket = await peer.accept();
    socket.send({
      type: "error",
      code: "UNSUPPORTED_VERSION",
      message: "speak 2",
      retryable: false,
    });
    socket.raw.close(CLOSE_CODES.BAD_FRAMES, "not let in");

    const down = await client.downs.next();
    expect(down).toMatchObject({ kind: "refused", reason: "speak 2", retryInMs: 22_500 });
    expect(down.error?.code).toBe("UNSUPPORTED_VERSION");
  });

  test("wins also when the close is read before the error is handled", async ({ connect }) => {
    const { downs } = connect(["http://127.0.0.1:1"], {
      openSocket(_url, { on }) {
        queueMicrotask(() => {
          on.open();
          on.text(
            JSON.stringify({
              type: "error",
              code: "UNSUPPORTED_VERSION",
              message: "speak 2",
              retryable: false,
            }),
          );
          on.closed({ code: CLOSE_CODES.BAD_FRAMES, reason: "not let in" });
        });
        return { send() {}, unsentBytes: () => 0, close() {}, terminate() {} };
      },
    });

    expect(await downs.next()).toMatchObject({ kind: "refused", reason: "speak 2", code: 4400 });
  });

  test("about one request only does not end it", async ({ peer, connect }) => {
    const client = connect([peer.url]);
    const about = {
      type: "error",
      code: "INBOX_FULL",
      message: "full",
      retryable: true,
      request_id: "r-1",
    };
    (await peer.accept()).send(about, ack);

    await client.ready.next();
    expect(await client.messages.next()).toEqual(about);
  });
});

describe("an answer that is no WebSocket", () => {
  test.for([
    [401, "unauthenticated"],
    [403, "forbidden"],
    [404, "unreachable"],
    [503, "unreachable"],
  ] as const)("of HTTP %i is %s", async ([status, kind], { connect }) => {
    const server = await startRefusing(status);
    const { downs } = connect([server.url]);

    expect(await downs.next()).toMatchObject({ kind, code: 1006, wasReady: false });
    await server.close();
  });
});

async function startRefusing(status: number) {
  const server = createServer();
  server.on("upgrade", (_request, socket) =>
    socket.end(`HTTP/1.1 ${status} No\r\ncontent-length: 0\r\n\r\n`),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}

test("a page that may not connect gets a failure like any other", async ({ connect }) => {
  const { downs } = connect(["http://127.0.0.1:1"], {
    openSocket() {
      throw new Error("SecurityError");
    },
  });

  expect(await downs.next()).toMatchObject({ kind: "unreachable", reason: "Error: SecurityError" });
});

test("a handshake that throws is a failed attempt", async ({ peer, connect }) => {
  const { downs } = connect([peer.url], {
    handshake: () => Promise.reject(new Error("the key is locked")),
  });
  await peer.accept();

  const down = await downs.next();
  expect(down).toMatchObject({ kind: "handshake", reason: "Error: the key is locked" });
  expect(down.error?.code).toBe("INTERNAL");
});
