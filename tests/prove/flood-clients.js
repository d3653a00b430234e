// Hostile clients in a process of their own: one node, one session and many strangers, all at once for `ms`.
//
//   node flood-clients.js <options as JSON>
//
// The strangers come, and the time begins, when the node and the session have their first answers. At the end one line of JSON says how much they did.
import { generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { connect } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { challengeText, encodeBase58 } from "@tenure/protocol";
import { WebSocket } from "ws";

/** @type {{ url: string, nodeToken: string, sessionToken: string, strangers: number, ms: number, victims: string[], rows: { id: string, generation: number }[] }} */
const options = JSON.parse(String(process.argv[2]));
const { url, nodeToken, sessionToken, strangers, ms, victims, rows } = options;
const { hostname, port } = new URL(url);
const wsUrl = url.replace("http", "ws");

let over = false;
const isOver = () => over;
/** @type {() => void} */
let end = () => {};
const ended = new Promise((resolve) => {
  end = () => {
    over = true;
    resolve(undefined);
  };
});

const did = {
  nodeFrames: 0,
  nodeAnswers: 0,
  nodeConnections: 0,
  submits: 0,
  accepted: 0,
  refused: 0,
  sessions: 0,
  strangerConnections: 0,
  strangersOpen: 0,
};

/** Bytes that may wait in this process: the flood is as fast as the server reads, and no memory test of its own client. */
const UNSENT_MAX = 4 * 1_024 * 1_024;
const AGAIN_MS = 50;

/**
 * Sends batch after batch until the socket is closed or the time is up.
 * @param {WebSocket} socket
 * @param {() => void} sendBatch
 */
async function pour(socket, sendBatch) {
  while (socket.readyState === WebSocket.OPEN && !isOver()) {
    if (socket.bufferedAmount < UNSENT_MAX) sendBatch();
    // The strangers share this event loop.
    await wait(socket.bufferedAmount < UNSENT_MAX ? 0 : 5);
  }
}

/**
 * Opens a socket and hands its messages over, parsed.
 * @param {string} path
 * @param {(socket: WebSocket, message: Record<string, unknown>) => void} receive
 * @returns {Promise<WebSocket | undefined>}
 */
function openSocket(path, receive) {
  return new Promise((resolve) => {
    const socket = new WebSocket(`${wsUrl}${path}`);
    socket.on("message", (data) => receive(socket, JSON.parse(String(data))));
    socket.on("error", () => resolve(undefined));
    socket.on("close", () => resolve(undefined));
    socket.on("open", () => resolve(socket));
  });
}

// The node: calls that are statements, heartbeats, and reports on jobs that it does not have.

const { publicKey, privateKey } = generateKeyPairSync("ed25519");
const address = encodeBase58(publicKey.export({ format: "der", type: "spki" }).subarray(-32));
const bootId = randomUUID();

/** @param {Record<string, unknown>} challenge */
function registration({ nonce, server_id }) {
  const names = { address, boot_id: bootId };
  const text = challengeText({ nonce: String(nonce), server_id: String(server_id), ...names });
  const signature = sign(null, Buffer.from(text), privateKey).toString("base64");
  return {
    ...{ type: "node_register", protocol_version: 1, ...names, signature, token: nodeToken },
    ...{ name: "hostile", version: "0.0.0", tags: { node_unit: true }, member_pages: true },
    ...{ pools: ["hostile"], capacity: 10, custom_command: true, claim_policy: "none" },
  };
}

/** @type {(() => { method: string, params: unknown })[]} */
const CALLS = [
  () => ({ method: "member.list", params: {} }),
  () => ({ method: "deployment.list", params: {} }),
  () => ({ method: "deployment.release", params: { addresses: victims } }),
  () => ({ method: "deployment.claim", params: { candidates: rows } }),
  () => ({
    method: "deployment.report",
    params: { deployment_id: randomUUID(), generation: 1, state: "running" },
  }),
  () => ({
    method: "deployment.report",
    params: { deployment_id: rows[0]?.id, generation: rows[0]?.generation, state: "failed" },
  }),
];
const BATCH = 60;
const PROGRESS = "p".repeat(10_000);

async function floodAsNode() {
  let last = 0;
  while (!isOver()) {
    let isReady = () => {};
    const ready = new Promise((resolve) => {
      isReady = () => resolve(undefined);
    });
    const socket = await openSocket("/ws/node", (opened, message) => {
      if (message.type === "node_challenge") opened.send(JSON.stringify(registration(message)));
      if (message.type === "node_register_ack") isReady();
      if (message.type === "response") did.nodeAnswers += 1;
    });
    if (socket) {
      did.nodeConnections += 1;
      await Promise.race([ready, wait(2_000)]);
      await pour(socket, () => {
        for (let n = 0; n < BATCH; n++) {
          const id = ++last;
          const attempt = { job_id: randomUUID(), attempt_id: 1 };
          const call = CALLS[id % CALLS.length];
          const frames = [
            { type: "request", id, ...call?.() },
            { type: "node_heartbeat", seq: id, running: [] },
            { type: "job_ack", ...attempt },
            { type: "job_started", ...attempt },
            { type: "job_progress", ...attempt, body: PROGRESS },
            { type: "job_result", ...attempt, success: true, body: PROGRESS },
          ];
          for (const frame of frames) socket.send(JSON.stringify(frame));
          did.nodeFrames += frames.length;
        }
      });
      socket.terminate();
    }
    await wait(AGAIN_MS);
  }
}

// The session: large payloads for pools that nothing serves, and sessions that are opened and dropped.

const PAYLOAD = "x".repeat(200_000);
const INIT = JSON.stringify({ type: "session_init", protocol_version: 1, token: sessionToken });

async function floodAsSession() {
  let last = 0;
  while (!isOver()) {
    let isReady = () => {};
    const ready = new Promise((resolve) => {
      isReady = () => resolve(undefined);
    });
    const socket = await openSocket("/ws/session", (_, message) => {
      if (message.type === "session_init_ack") isReady();
      if (message.type === "job_accepted") did.accepted += 1;
      if (message.type === "error") did.refused += 1;
    });
    socket?.send(INIT);
    if (socket) {
      await Promise.race([ready, wait(2_000)]);
      await pour(socket, () => {
        for (let n = 0; n < 5; n++) {
          const request = { request_id: randomUUID(), pool: `unserved-${++last % 50}` };
          const job = { type: "job_submit", ...request, payload: PAYLOAD, pending_ms: 600_000 };
          socket.send(JSON.stringify(job));
          did.submits += 1;
        }
      });
      socket.terminate();
    }
    await wait(AGAIN_MS);
  }
}

async function dropSessions() {
  while (!isOver()) {
    let isDone = () => {};
    const done = new Promise((resolve) => {
      isDone = () => resolve(undefined);
    });
    const socket = await openSocket("/ws/session", (_, { type }) => {
      if (type === "session_init_ack") did.sessions += 1;
      isDone();
    });
    socket?.send(INIT);
    if (socket) await Promise.race([done, wait(2_000)]);
    socket?.terminate();
    await wait(socket ? 0 : AGAIN_MS);
  }
}

// The strangers: from other addresses than the agents, without a token.

const ADDRESSES = 20;

/** @param {string} line @param {string[]} headers */
const head = (line, ...headers) =>
  [`${line} HTTP/1.1`, `host: ${hostname}:${port}`, ...headers, "", ""].join("\r\n");
/** @param {string} path */
const upgrade = (path) =>
  head(
    `GET ${path}`,
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
  );
const JSON_BODY = ["content-type: application/json", "content-length: 1000000"];

/** What each of them says after it has connected, and then nothing more. */
const SAYINGS = [
  () => "",
  () => head("POST /api/v1/deployments", ...JSON_BODY) + "x".repeat(60_000),
  () => head("POST /api/v1/login", "content-type: application/json", "content-length: 4000"),
  () => upgrade("/ws/nowhere"),
  () => upgrade("/ws/node"),
  () => head("GET /api/v1/deployments", `authorization: Bearer ${randomUUID()}`),
  () => "GET /health/live HTTP/1.1\r\nhost: 127",
];

/** @param {number} index */
async function actAsStranger(index) {
  const localAddress = `127.0.0.${2 + (index % ADDRESSES)}`;
  await wait((index % 100) * 10);
  while (!isOver()) {
    const socket = connect({ host: hostname, port: Number(port), localAddress });
    socket.on("error", () => {});
    socket.on("data", () => {});
    socket.on("connect", () => {
      did.strangerConnections += 1;
      did.strangersOpen += 1;
      socket.write(SAYINGS[index % SAYINGS.length]?.() ?? "");
      socket.once("close", () => {
        did.strangersOpen -= 1;
      });
    });
    const closed = new Promise((resolve) => socket.once("close", resolve));
    await Promise.race([closed, ended]);
    socket.destroy();
    await wait(AGAIN_MS + Math.random() * 500);
  }
}

const all = [floodAsNode(), floodAsSession(), ...Array.from({ length: 8 }, dropSessions)];
while (did.nodeAnswers === 0 || did.accepted === 0 || did.sessions === 0) await wait(50);
all.push(...Array.from({ length: strangers }, (_, index) => actAsStranger(index)));
let strangersMost = 0;
for (const endsAtMs = performance.now() + ms; performance.now() < endsAtMs; await wait(50))
  strangersMost = Math.max(strangersMost, did.strangersOpen);
end();
await Promise.all(all);
console.log(JSON.stringify({ ...did, strangersMost }));
process.exit(0);
