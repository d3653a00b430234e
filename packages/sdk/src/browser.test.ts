import { fileURLToPath } from "node:url";
import { build } from "vite";
import { afterEach, beforeEach, describe, expect, onTestFinished, vi } from "vitest";
import { WebSocket } from "ws";
import { createArrivals } from "../testing/arrivals.ts";
import { ack, finalized, meet, nextTick, test } from "../testing/connection-fixture.ts";
import type { ManualClock } from "../testing/manual-clock.ts";
import type { Peer } from "../testing/peer.ts";
import { openSocket } from "./connection/websocket-browser.ts";
import { Session } from "./session/session.ts";

const ENTRY = fileURLToPath(new URL("./index.ts", import.meta.url));

/** What a bundler makes of the SDK, and from which files. */
async function bundle(conditions: string[]) {
  const result = await build({
    configFile: false,
    logLevel: "error",
    resolve: { conditions: ["source", ...conditions] },
    build: { write: false, minify: false, lib: { entry: ENTRY, formats: ["es"] } },
  });
  const [{ output }] = [result].flat() as unknown as [
    { output: { code: string; imports: string[]; moduleIds: string[] }[] },
  ];
  return {
    code: output.map(({ code }) => code).join("\n"),
    imports: output.flatMap(({ imports }) => imports),
    files: output.flatMap(({ moduleIds }) => moduleIds),
  };
}

/** Vite puts an empty module of that name in the place of everything that only Node has. */
const isNodes = (file: string): boolean =>
  /node_modules\/ws\/|websocket-node|^node:|__vite-browser-external/.test(file);

describe("the SDK in a bundle for browsers", () => {
  test("contains neither ws nor Node modules", async () => {
    const { code, imports, files } = await bundle(["browser"]);

    expect(files.some((file) => file.endsWith("/websocket-browser.ts"))).toBe(true);
    for (const name of ["createSessionConnection", "Session", "Worker"])
      expect(code).toMatch(new RegExp(`export {[^}]*\\b${name}\\b`));
    expect(imports).toEqual([]);
    expect(files.filter(isNodes)).toEqual([]);
  });

  test("would contain them without the conditions of package.json", async () => {
    const { files } = await bundle(["node"]);

    const nodes = files.filter(isNodes).join("\n");
    expect(nodes).toContain("node_modules/ws/");
    expect(nodes).toContain("__vite-browser-external");
  });
});

// The `ws` package has the interface of browsers too, so it can stand in for theirs on a real network. Theirs
// does not throw when it has no error listener.
class BrowserWebSocket extends WebSocket {
  constructor(url: string) {
    super(url);
    this.on("error", () => {});
  }
}

describe("the WebSocket of a browser", () => {
  beforeEach(() => {
    vi.stubGlobal("WebSocket", BrowserWebSocket);
  });
  afterEach(() => {
    vi.unstubAllGlobals();
  });

  test("carries a connection", async ({ peer, connect }) => {
    const client = connect([peer.url], { openSocket });
    const socket = await meet(peer, client);
    socket.send(finalized(1));
    expect(await client.messages.next()).toEqual(finalized(1));

    client.connection.send({ type: "turn_finalize", reason: "manual" });
    expect(await socket.receive()).toEqual({ type: "turn_finalize", reason: "manual" });
    await client.connection.close();
    expect(await socket.closed).toMatchObject({ code: 1000 });
  });

  test("reports the close code and reason", async ({ peer, connect }) => {
    const client = connect([peer.url], { openSocket });
    (await meet(peer, client)).raw.close(4403, "a viewer's token");

    const down = await client.downs.next();
    expect(down).toMatchObject({ kind: "forbidden", code: 4403, reason: "a viewer's token" });
  });

  test("reports that no server listens", async ({ connect }) => {
    const { downs } = connect(["http://127.0.0.1:1"], { openSocket });

    expect(await downs.next()).toMatchObject({ kind: "unreachable", code: 1006 });
  });

  test("refuses binary frames and frames over the limit", async ({ peer, connect }) => {
    const client = connect([peer.url], { openSocket, limits: { frameBytesMax: 10_000 } });
    const socket = await meet(peer, client);
    socket.raw.send(Buffer.from([1]));
    expect((await client.problems.next()).message).toContain("binary");
    socket.send("x".repeat(10_001));

    expect(await client.downs.next()).toMatchObject({ kind: "frame_too_large", code: 1009 });
    await socket.closed;
  });

  test("stays with a silent server that does not know session_ping", async ({
    peer,
    clock,
    connect,
  }) => {
    const client = connect([peer.url], { openSocket });
    await meet(peer, client);
    clock.advance(1_000_000);

    expect(client.connection.state).toBe("ready");
  });

  const offer = { ...ack, session_ping: true };
  async function take(peer: Peer, client: ReturnType<typeof start>) {
    const socket = await peer.accept();
    await socket.receive();
    socket.send(offer);
    await client.ready.next();
    return socket;
  }
  function start(url: string, clock: ManualClock) {
    const ready = createArrivals<void>("ready");
    const downs = createArrivals<{ kind: string }>("loss");
    const session = new Session({
      url,
      clock,
      openSocket,
      on: { ready: () => ready.push(), down: downs.push },
    });
    onTestFinished(async () => {
      const closed = session.close();
      clock.advance(10_000);
      await closed;
    });
    return { session, ready, downs };
  }

  test("pings by message, and leaves a silent server", async ({ peer, clock }) => {
    const client = start(peer.url, clock);
    const socket = await take(peer, client);
    for (let answered = 0; answered < 3; answered++) {
      clock.advance(5_000);
      expect(await socket.receive()).toEqual({ type: "session_ping" });
      socket.send({ type: "session_pong" });
      await nextTick();
      await nextTick();
    }
    expect(client.session.state).toBe("ready");
    clock.advance(15_000);
    expect(await client.downs.next()).toMatchObject({ kind: "silent" });
  });

  test("stays connected in a page whose timers run once a minute, while the server answers", async ({
    peer,
    clock,
  }) => {
    const client = start(peer.url, clock);
    const socket = await take(peer, client);
    for (let minute = 0; minute < 5; minute++) {
      clock.freeze(60_000);
      expect(await socket.receive()).toEqual({ type: "session_ping" });
      socket.send({ type: "session_pong" });
      await nextTick();
      await nextTick();
    }
    expect(client.session.state).toBe("ready");
  });
});
