import { randomUUID } from "node:crypto";
import { challengeText } from "@tenure/protocol";
import { createNodeKey } from "@tenure/testing/fleet/raw-node";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import WebSocket from "ws";
import type { Answer } from "../../testing/apps.ts";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";

// A version-1 client that knows none of the features: every byte it gets is that of a server without them, with names for ids.

interface Wire {
  socket: WebSocket;
  /** The text of every frame, with names for ids and times. */
  frames: string[];
  send(message: object): void;
  /** Waits for the n-th frame from here, which is of this type. */
  at(index: number, type: string): Promise<Answer>;
}

const open: WebSocket[] = [];

async function connect(url: string, path: string): Promise<Wire> {
  const socket = new WebSocket(`${url.replace("http", "ws")}${path}`);
  open.push(socket);
  const texts: string[] = [];
  socket.on("message", (data) => texts.push(data.toString()));
  await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
  return {
    socket,
    get frames() {
      return texts.map(withNames);
    },
    send: (message) => socket.send(JSON.stringify(message)),
    async at(index, type) {
      await until(() => texts.length > index, { what: `frame ${index} after ${texts.at(-1)}` });
      const message = JSON.parse(texts[index] as string);
      expect(message.type).toBe(type);
      return message;
    },
  };
}

const withNames = (text: string): string =>
  text
    .replace(/"(job_id|turn_id)":"[0-9a-f-]{36}"/g, '"$1":"<id>"')
    .replace(/"(session_id)":"[0-9a-f]{32}"/g, '"$1":"<id>"')
    .replace(/"(resume_token|nonce|server_id|instance_id|node_id)":"[^"]+"/g, '"$1":"<$1>"')
    .replace(/"epoch":\d+/g, '"epoch":0');

describe.each(["memory", "redis"] as const)("a client without features, on %s", (kind) => {
  let fleet: JobFleet;
  beforeAll(async () => {
    fleet = await openJobFleet(kind, { env: { TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60" } });
  });
  afterEach(() => {
    for (const socket of open.splice(0)) socket.close();
  });
  afterAll(() => fleet.stop());

  async function registered(pool: string): Promise<Wire> {
    const node = await connect(fleet.apps[0]!.url, "/ws/node");
    const { nonce, server_id } = await node.at(0, "node_challenge");
    const key = createNodeKey();
    const identity = { address: key.address, boot_id: randomUUID() };
    const signature = key.sign(challengeText({ nonce, server_id, ...identity }));
    const description = { name: "plain", version: "1", tags: {}, pools: [pool], capacity: 2 };
    node.send({
      ...{ type: "node_register", protocol_version: 1, ...identity, signature, ...description },
    });
    await node.at(1, "node_register_ack");
    await until(
      async () => {
        const { body } = await fleet.ask(fleet.apps[0]!, "GET", `/nodes/${key.address}`);
        return body.online === true;
      },
      { what: "the node in the selection" },
    );
    return node;
  }

  async function joined(): Promise<Wire> {
    const session = await connect(fleet.apps[0]!.url, "/ws/session");
    session.send({ type: "session_init", protocol_version: 1 });
    await session.at(0, "session_init_ack");
    return session;
  }

  test("gets the frames of a server without features, byte for byte", async () => {
    const pool = `plain-${kind}`;
    const node = await registered(pool);
    const session = await joined();
    session.send({ type: "job_submit", request_id: "one", pool, payload: { n: 1 } });
    const { job_id, attempt_id } = await node.at(2, "job_assign");
    await session.at(2, "job_update");
    const about = { job_id, attempt_id };
    node.send({ type: "job_ack", ...about });
    await session.at(3, "job_update");
    node.send({ type: "job_started", ...about });
    await session.at(4, "job_update");
    node.send({ type: "job_progress", ...about, body: 50 });
    await session.at(5, "job_progress");
    node.send({ type: "job_result", ...about, success: true, body: "done" });
    await session.at(6, "job_result");
    session.send({ type: "job_result_ack", job_id });
    await node.at(3, "job_result_ack");
    await fleet.reached(job_id, "RELEASED");

    // A second result of the same attempt, and a frame of an attempt that is over.
    node.send({ type: "job_result", ...about, success: true, body: "done" });
    await node.at(4, "job_result_ack");
    node.send({ type: "job_started", ...about });
    await node.at(5, "error");
    node.send({ type: "node_heartbeat", seq: 7, running: [] });
    await node.at(6, "node_heartbeat_ack");

    expect(session.frames).toEqual([
      '{"type":"session_init_ack","session_id":"<id>","resume_token":"<resume_token>","instance_id":"<instance_id>","protocol_version":1,"session_ping":true}',
      '{"type":"job_accepted","request_id":"one","job_id":"<id>","duplicate":false}',
      '{"type":"job_update","job_id":"<id>","state":"DISPATCHED","attempt_id":1,"node_id":"<node_id>"}',
      '{"type":"job_update","job_id":"<id>","state":"ACCEPTED","attempt_id":1,"node_id":"<node_id>"}',
      '{"type":"job_update","job_id":"<id>","state":"RUNNING","attempt_id":1,"node_id":"<node_id>"}',
      '{"type":"job_progress","job_id":"<id>","attempt_id":1,"body":50}',
      '{"type":"job_result","request_id":"one","job_id":"<id>","attempt_id":1,"node_id":"<node_id>","success":true,"outcome":"succeeded","body":"done"}',
    ]);
    expect(node.frames).toEqual([
      '{"type":"node_challenge","nonce":"<nonce>","server_id":"<server_id>"}',
      '{"type":"node_register_ack","node_id":"<node_id>","instance_id":"<instance_id>","epoch":0,"heartbeat_interval_ms":5000,"protocol_version":1}',
      `{"type":"job_assign","job_id":"<id>","attempt_id":1,"request_id":"one","session_id":"<id>","pool":"${pool}","timeout_ms":30000,"payload":{"n":1}}`,
      '{"type":"job_result_ack","job_id":"<id>","attempt_id":1,"outcome":"applied"}',
      '{"type":"job_result_ack","job_id":"<id>","attempt_id":1,"outcome":"duplicate"}',
      expect.stringMatching(/^\{"type":"error","code":"STALE_ATTEMPT"/),
      '{"type":"node_heartbeat_ack","seq":7,"presence_ok":true,"epoch":0}',
    ]);
    const { body } = await fleet.ask(fleet.apps[0]!, "GET", `/jobs/${job_id}`);
    const states = body.timeline.map(({ state }: { state: string }) => state);
    expect(states).toEqual([
      "CREATED",
      "DISPATCHED",
      "ACCEPTED",
      "RUNNING",
      "FINISHED",
      "RELEASED",
    ]);
  });

  test("loses no attempt with a node that is lost before it has acknowledged", async () => {
    const pool = `lost-${kind}`;
    const node = await registered(pool);
    const session = await joined();
    session.send({ type: "job_submit", request_id: `two-${kind}`, pool, payload: 2 });
    const { job_id } = await node.at(2, "job_assign");
    node.socket.close();
    await fleet.reached(job_id, "CREATED", 2);
    const next = await registered(pool);
    expect(await next.at(2, "job_assign")).toMatchObject({ job_id, attempt_id: 2 });
    next.send({ type: "job_result", job_id, attempt_id: 2, success: true });
    const { body } = await fleet.ask(fleet.apps[0]!, "GET", `/jobs/${job_id}`);
    const [, , lost] = body.timeline;
    expect(lost).toMatchObject({ state: "CREATED", attempt_id: 2, reason: "its node was lost" });
  });
});
