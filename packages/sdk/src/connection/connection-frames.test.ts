import type { SessionToServer } from "@tenure/protocol";
import { describe, expect } from "vitest";
import { finalized, meet, nextTick, test } from "../../testing/connection-fixture.ts";

describe("an invalid frame of a server", () => {
  test.for([
    ["no JSON", "{", "not JSON"],
    ["no object", "[1]", "expected object"],
    ["no type", "{}", "type"],
    ["a wrong field", JSON.stringify({ ...finalized(1), reason: 7 }), "turn_finalized: reason"],
    ["a prototype", '{"type":"turn_finalized","__proto__":{"turn_id":"x"}}', "turn_id"],
    ["deep nesting", "[".repeat(100_000), "not JSON"],
  ] as const)("is reported and skipped: %s", async ([, frame, words], { peer, connect }) => {
    const client = connect([peer.url]);
    (await meet(peer, client)).send(frame, finalized(1));

    const problem = await client.problems.next();
    expect(problem.code).toBe("INVALID_MESSAGE");
    expect(problem.message.toLowerCase()).toContain(words.toLowerCase());
    expect(await client.messages.next()).toEqual(finalized(1));
  });

  test("binary is reported and skipped", async ({ peer, connect }) => {
    const client = connect([peer.url]);
    const socket = await meet(peer, client);
    socket.raw.send(Buffer.from([0xff, 0x00]));
    socket.send(finalized(1));

    expect((await client.problems.next()).message).toContain("binary");
    expect(await client.messages.next()).toEqual(finalized(1));
  });

  test("thousands are reported three times, and again on a new connection", async ({
    peer,
    clock,
    connect,
  }) => {
    const client = connect([peer.url]);
    const socket = await meet(peer, client);
    socket.send(...Array<string>(5_000).fill("{"), finalized(1));
    await client.messages.next();
    expect(client.problems.rest()).toHaveLength(3);

    socket.raw.terminate();
    clock.advance((await client.downs.next()).retryInMs);
    (await meet(peer, client)).send("{", finalized(2));
    await client.messages.next();
    expect(client.problems.rest()).toHaveLength(1);
  });

  test("an unknown type is a newer server's: reported once, then ignored", async ({
    peer,
    clock,
    connect,
  }) => {
    const client = connect([peer.url]);
    const socket = await meet(peer, client);
    const news = { type: "weather_report", rain: true };
    socket.send(news, news, { type: "x".repeat(500) }, finalized(1));
    await client.messages.next();
    socket.raw.terminate();
    clock.advance((await client.downs.next()).retryInMs);
    (await meet(peer, client)).send(news, finalized(2));
    await client.messages.next();

    const [known, long, ...more] = client.problems.rest();
    expect(known?.message).toContain('unknown type "weather_report"');
    expect(long?.message.length).toBeLessThan(200);
    expect(more).toEqual([]);
  });

  test("a frame over the limit ends the connection", async ({ peer, connect }) => {
    const client = connect([peer.url], { limits: { frameBytesMax: 10_000 } });
    const socket = await meet(peer, client);
    socket.send(JSON.stringify({ ...finalized(1), padding: "x".repeat(10_000) }));

    const down = await client.downs.next();
    expect(down).toMatchObject({ kind: "frame_too_large", code: 1009, wasReady: true });
    expect(down.error?.code).toBe("INVALID_MESSAGE");
    expect(await socket.closed).toMatchObject({ code: 1009 });
  });

  test("garbage before it is ready ends the attempt", async ({ peer, connect }) => {
    const client = connect([peer.url]);
    (await peer.accept()).send("<html>");

    expect(await client.downs.next()).toMatchObject({ kind: "handshake", wasReady: false });
  });

  test("a flood before it is ready ends the attempt", async ({ peer, connect }) => {
    const client = connect([peer.url]);
    (await peer.accept()).send(...Array<object>(300).fill(finalized(1)));

    expect(await client.downs.next()).toMatchObject({
      kind: "handshake",
      reason: "too many messages before it was ready",
    });
  });
});

describe("an outgoing message", () => {
  const submit = (bytes: number): SessionToServer => ({
    type: "job_submit",
    request_id: "r-1",
    pool: "p",
    payload: "x".repeat(bytes),
  });

  test("is refused while there is no connection", async ({ peer, connect }) => {
    const { connection } = connect([peer.url]);

    expect(connection.send(submit(1))).toBe("not_connected");
    const socket = await peer.accept();
    expect(connection.send(submit(1))).toBe("not_connected");
    expect(socket.unread()).toEqual([]);
  });

  test("is at most as large as the server allows", async ({ peer, connect }) => {
    const client = connect([peer.url]);
    const socket = await meet(peer, client);
    const overhead = JSON.stringify(submit(0)).length;

    expect(client.connection.send(submit(1024 * 1024 - overhead + 1))).toBe("too_large");
    expect(client.connection.send({ ...submit(0), payload: "ü".repeat(600_000) } as never)).toBe(
      "too_large",
    );
    expect(client.connection.send(submit(1024 * 1024 - overhead))).toBe("sent");
    await socket.receive();
    expect(socket.unread()).toEqual([]);
  });

  test("is refused when the server does not read, long before memory is full", async ({
    peer,
    connect,
  }) => {
    const client = connect([peer.url], { limits: { unsentBytesMax: 2_000_000 } });
    const socket = await meet(peer, client);
    socket.raw.pause();
    let sent = 0;
    // What the kernel takes is not ours to bound; it is a few MB at most.
    while (client.connection.send(submit(500_000)) === "sent" && sent < 100) {
      sent += 1;
      await nextTick();
    }

    expect(client.connection.send(submit(500_000))).toBe("queue_full");
    expect(sent).toBeLessThan(100);
    expect(client.connection.send({ type: "turn_finalize", reason: "manual" })).toBe("sent");
    socket.raw.resume();
  });
});
