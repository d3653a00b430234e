import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { parseMessage } from "@tenure/protocol";
import { until } from "@tenure/testing/until";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import * as z from "zod";
import {
  FRAME_LIMITS,
  type FrameLimits,
  type MessageSocket,
  openMessageSocket,
} from "./message-socket.ts";

const Numbered = z.discriminatedUnion("type", [z.object({ type: z.literal("n"), n: z.int() })]);
type Numbered = z.infer<typeof Numbered>;

describe("a message socket", () => {
  const server = createServer();
  let sockets: WebSocketServer;
  let url: string;
  let limits: FrameLimits;
  let receive: (message: Numbered) => Promise<void> | void;
  let accepted: Array<{
    link: MessageSocket<unknown>;
    socket: WebSocket;
    closed: boolean;
    silently?: boolean;
    abruptly?: boolean;
  }>;

  beforeEach(async () => {
    limits = FRAME_LIMITS;
    receive = () => {};
    accepted = [];
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
    sockets = new WebSocketServer({ server, maxPayload: 1_000_000, perMessageDeflate: false });
    sockets.on("connection", (socket) => {
      const entry = { socket, closed: false } as (typeof accepted)[number];
      entry.link = openMessageSocket<Numbered, unknown>(socket, {
        parse: (frame) => parseMessage(Numbered, frame),
        limits,
        handlers: {
          receive: (message) => receive(message),
          closed: ({ silently, abruptly }) => {
            entry.closed = true;
            entry.silently = silently;
            entry.abruptly = abruptly;
          },
        },
      });
      accepted.push(entry);
    });
  });
  afterEach(async () => {
    for (const client of sockets.clients) client.terminate();
    sockets.close();
    await new Promise((resolve) => server.close(resolve));
  });

  async function open(): Promise<WebSocket & { received: string[]; code?: number }> {
    const client = Object.assign(new WebSocket(url), { received: [] as string[] }) as WebSocket & {
      received: string[];
      code?: number;
    };
    client.on("message", (data) => client.received.push(data.toString()));
    client.on("error", () => {});
    client.on("close", (code) => {
      client.code = code;
    });
    await new Promise((resolve) => client.once("open", resolve));
    return client;
  }
  const closeOf = (client: { code?: number }) =>
    until(() => client.code, { what: "the socket to be closed" });
  const say = (client: WebSocket, n: number) => client.send(JSON.stringify({ type: "n", n }));

  test.each([
    ["not JSON", "{"],
    ["an array", "[]"],
    ["an unknown type", '{"type":"constructor"}'],
    ["a wrong field", '{"type":"n","n":"1"}'],
    ["a number too large to be exact", '{"type":"n","n":9007199254740993}'],
    ["__proto__ as type", '{"type":"__proto__"}'],
    ["bytes", Buffer.from('{"type":"n","n":1}')],
  ])("%s is answered with an error, and the third closes this socket and no other", async (_, frame) => {
    const got: number[] = [];
    receive = ({ n }) => void got.push(n);
    const [bad, good] = [await open(), await open()];
    for (let n = 0; n < 3; n++) bad.send(frame);
    expect(await closeOf(bad)).toBe(4400);
    expect(bad.received.map((text) => JSON.parse(text).code)).toEqual(
      Array(3).fill("INVALID_MESSAGE"),
    );
    say(good, 7);
    await until(() => got.includes(7), { what: "the other socket's message" });
  });

  test("a close or a reset is not a silent loss; no answer is", async () => {
    limits = { ...FRAME_LIMITS, pingIntervalMs: 20 };
    const [polite, killed, frozen] = [await open(), await open(), await open()];
    expect(await accepted[2]!.link.ping(1_000)).toBe(true);
    polite.close();
    killed.terminate();
    frozen.pause();
    expect(await accepted[2]!.link.ping(30)).toBe(false);
    await until(() => accepted.every(({ closed }) => closed), { what: "all three to be closed" });
    expect(accepted.map(({ silently }) => silently)).toEqual([false, false, true]);
    expect(accepted.map(({ abruptly }) => abruptly)).toEqual([false, true, true]);
    expect(await accepted[2]!.link.ping(30)).toBe(false);
  });

  test("two bad frames leave the socket open", async () => {
    const got: number[] = [];
    receive = ({ n }) => void got.push(n);
    const client = await open();
    client.send("{");
    client.send("{");
    say(client, 1);
    await until(() => got.length === 1, { what: "the good frame" });
    expect(client.readyState).toBe(WebSocket.OPEN);
  });

  test("a frame over the limit closes with 1009", async () => {
    const client = await open();
    client.send(JSON.stringify({ type: "n", n: 1, padding: "x".repeat(1_000_001) }));
    expect(await closeOf(client)).toBe(1009);
  });

  test("messages are handled in order, however long each takes", async () => {
    const got: number[] = [];
    receive = async ({ n }) => {
      for (let turns = 0; turns < n % 7; turns++) await new Promise(setImmediate);
      got.push(n);
    };
    const client = await open();
    for (let n = 0; n < 1_000; n++) say(client, n);
    await until(() => got.length === 1_000, { what: "a thousand messages" });
    expect(got).toEqual(Array.from({ length: 1_000 }, (_, n) => n));
  });

  test("a stuck handler pauses the reading of its socket, and no message is lost", async () => {
    let release = () => {};
    const stuck = new Promise<void>((resolve) => {
      release = resolve;
    });
    const got: number[] = [];
    receive = async ({ n }) => {
      if (n === 0) await stuck;
      got.push(n);
    };
    const client = await open();
    for (let n = 0; n < 2_000; n++) say(client, n);
    await until(() => accepted[0]?.socket.isPaused, { what: "the reading to stop" });
    release();
    await until(() => got.length === 2_000, { what: "every message" });
  });

  test("a sender faster than the limit is read later, not refused", async () => {
    limits = { ...FRAME_LIMITS, framesPerSecondMax: 100 };
    const got: number[] = [];
    receive = ({ n }) => void got.push(n);
    const client = await open();
    const startedAtMs = performance.now();
    // Large enough that they come in many reads: what one read brings is taken whole.
    for (let n = 0; n < 250; n++)
      client.send(JSON.stringify({ type: "n", n, padding: "x".repeat(20_000) }));
    await until(() => got.length === 250, { what: "every message" });
    expect(performance.now() - startedAtMs).toBeGreaterThan(1_000);
    expect(client.readyState).toBe(WebSocket.OPEN);
  });

  test("an error of a handler is sent to the sender, and the socket goes on", async () => {
    receive = async () => {
      throw new Error("a secret");
    };
    const client = await open();
    say(client, 1);
    await until(() => client.received.length === 1, { what: "the error" });
    expect(JSON.parse(client.received[0]!)).toMatchObject({ type: "error", code: "INTERNAL" });
    expect(client.received[0]).not.toContain("secret");
    expect(client.readyState).toBe(WebSocket.OPEN);
  });

  test("a reader that does not read is disconnected at the limit; others do not notice", async () => {
    limits = { ...FRAME_LIMITS, unsentBytesMax: 1_000_000 };
    const [slow, other] = [await open(), await open()];
    (slow as unknown as { _socket: Socket })._socket.pause();
    const [forSlow, forOther] = accepted;
    let unsent = 0;
    for (let sent = 0; sent < 200 && !forSlow!.closed; sent++) {
      forSlow!.link.send({ blob: "x".repeat(100_000) });
      unsent = Math.max(unsent, forSlow!.socket.bufferedAmount);
      await new Promise(setImmediate);
    }
    await until(() => forSlow!.closed, { what: "the slow reader to be cut off" });
    expect(unsent).toBeLessThan(1_000_000 + 200_000);
    forOther!.link.send({ still: "here" });
    await until(() => other.received.length === 1, { what: "the other's message" });
  });

  test("a half-open connection is noticed after two unanswered pings", async () => {
    limits = { ...FRAME_LIMITS, pingIntervalMs: 50 };
    const { port } = server.address() as AddressInfo;
    const deaf = connect(port, "127.0.0.1");
    deaf.write(
      `GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${Buffer.alloc(16).toString("base64")}\r\n\r\n`,
    );
    const answering = await open();
    await until(() => accepted.length === 2 && accepted.some(({ closed }) => closed), {
      what: "the silent one to be dropped",
    });
    expect(answering.readyState).toBe(WebSocket.OPEN);
    deaf.destroy();
  });

  test("reports once that a message has left the process, or never will", async () => {
    const client = await open();
    const link = accepted[0]!.link;
    let written = 0;
    link.sendText('"first"', () => written++);
    await until(() => written === 1, { what: "the first to be written" });
    await until(() => client.received.includes('"first"'), { what: "the message" });
    client.terminate();
    await until(() => accepted[0]!.closed, { what: "the socket to be closed" });
    link.sendText('"second"', () => written++);
    expect(written).toBe(2);
  });
});
