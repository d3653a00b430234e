import { parentPort, workerData } from "node:worker_threads";
import { systemClock } from "../clock.ts";
import type { FromThread, ThreadData, ToThread } from "./blocking-socket.ts";
import { type Liveness, watchLiveness } from "./liveness.ts";
import { openSocket } from "./websocket-node.ts";

/** The thread of `openBlockingSocket`: one socket, and heartbeats while the main thread does not answer. */

const PROBE_EVERY_MS = 500;
/** The main thread counts as stalled after so long without an answer. */
const STALLED_MS = 1_000;
/** The default interval of the server. */
const HEARTBEAT_EVERY_MS = 5_000;
const HEARTBEAT = '{"type":"node_heartbeat",';

const { url, frameBytesMax, pingEveryMs, unsent, tls } = workerData as ThreadData;
const main = parentPort!;
const post = (message: FromThread) => main.postMessage(message);

let liveness: Liveness | undefined;
let heartbeat: string | undefined;
let probedAtMs: number | undefined;
let reportedAtMs = Number.NEGATIVE_INFINITY;

const socket = openSocket(url, {
  ...{ frameBytesMax, tls },
  on: {
    open() {
      liveness = watchLiveness({
        clock: systemClock,
        pingEveryMs,
        ping: () => socket.ping?.(),
        onSilent: () => socket.terminate(),
      });
      post({ kind: "open" });
    },
    text(text) {
      liveness?.alive();
      post({ kind: "text", text });
    },
    binary: () => post({ kind: "binary" }),
    heartbeat: () => liveness?.alive(),
    closed(close) {
      liveness?.stop();
      clearInterval(probing);
      post({ kind: "closed", close });
      main.close();
    },
  },
});

function send(text: string): void {
  socket.send(text);
  Atomics.store(unsent, 1, socket.unsentBytes());
}

/** The main thread sends its own heartbeats while it is awake. */
const probing = setInterval(() => {
  Atomics.store(unsent, 1, socket.unsentBytes());
  const nowMs = performance.now();
  if (probedAtMs === undefined) {
    probedAtMs = nowMs;
    return post({ kind: "probe" });
  }
  const stalledMs = Math.round(nowMs - probedAtMs);
  if (!heartbeat || stalledMs < STALLED_MS || nowMs - reportedAtMs < HEARTBEAT_EVERY_MS) return;
  reportedAtMs = nowMs;
  send(JSON.stringify({ ...JSON.parse(heartbeat), stalled_ms: stalledMs }));
}, PROBE_EVERY_MS);

main.on("message", (message: ToThread) => {
  switch (message.kind) {
    case "awake":
      probedAtMs = undefined;
      reportedAtMs = Number.NEGATIVE_INFINITY;
      break;
    case "send":
      Atomics.sub(unsent, 0, message.text.length);
      if (message.text.startsWith(HEARTBEAT)) heartbeat = message.text;
      send(message.text);
      break;
    case "close":
      socket.close(message.code, message.reason);
      break;
    case "terminate":
      socket.terminate();
  }
});
