import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Session } from "@tenure/sdk";
import { connectRawSession } from "@tenure/testing/fleet/raw-session";
import { startProxy } from "@tenure/testing/processes/proxy";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import WebSocket from "ws";
import type { App } from "../../packages/server/src/app.ts";
import {
  type JobFleet,
  type JobNode,
  type JobSession,
  openJobFleet,
} from "../../packages/server/testing/job-fleet.ts";

// More results than fit into a socket's buffer of 8 MiB.

let fleet: JobFleet;
let app: App;
beforeAll(async () => {
  fleet = await openJobFleet("memory", {
    env: {
      TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "60",
      TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
      TENURE_JOBS_RETENTION_SECONDS: "60",
    },
  });
  app = fleet.apps[0]!;
});
afterEach(() => fleet.rest());
afterAll(() => fleet.stop());

const BODY = "x".repeat(200_000);

/** Jobs of a session that has left, all ended with a result of 200 kB. */
async function endWhileAway(count: number): Promise<JobSession> {
  const node = await fleet.node(app, { capacity: count });
  const client = await fleet.session(app);
  for (let job = 0; job < count; job++) client.submit();
  await until(() => node.assignments().length === count, { what: "all jobs at the node" });
  await client.close();
  finishAll(node);
  const acked = () => node.received.filter(({ type }) => type === "job_result_ack").length;
  await until(() => acked() === count, { what: "all results taken" });
  return client;
}

function finishAll(node: JobNode): void {
  for (const assign of node.assignments()) node.finish(assign, { success: true, body: BODY });
}

async function resume({ sessionId, resumeToken }: JobSession, { acks }: { acks: boolean }) {
  const client = await connectRawSession({ url: app.url });
  onTestFinished(() => client.close());
  const results = new Set<string>();
  let code: number | undefined;
  void client.closed.then((close) => {
    code = close.code;
  });
  client.socket.on("message", (data) => {
    const { type, job_id } = JSON.parse(String(data)) as { type: string; job_id: string };
    if (type !== "job_result") return;
    results.add(job_id);
    if (acks) client.send({ type: "job_result_ack", job_id });
  });
  await client.init({ session_id: sessionId, resume_token: resumeToken });
  return {
    /** How many had come when all had, or the socket was closed. */
    async all(count: number) {
      await until(() => results.size === count || code !== undefined, {
        what: "results or a close",
      });
      return { results: results.size, code };
    },
  };
}

test("300 results of 200 kB after a resume come over one connection", async () => {
  const away = await endWhileAway(300);
  const client = await resume(away, { acks: true });
  expect(await client.all(300)).toEqual({ results: 300, code: undefined });
}, 30_000);

test("a client that never acknowledges receives them all the same", async () => {
  const away = await endWhileAway(100);
  const client = await resume(away, { acks: false });
  expect(await client.all(100)).toEqual({ results: 100, code: undefined });
}, 30_000);

test("a session that asks for another session's ended jobs gets their results over one connection", async () => {
  const node = await fleet.node(app, { capacity: 100 });
  const [first, second] = [await fleet.session(app), await fleet.session(app)];
  const requests = Array.from({ length: 100 }, () => first.submit());
  await until(() => node.assignments().length === 100, { what: "all jobs at the node" });
  finishAll(node);
  await until(() => first.results().length === 100, { what: "all results" });
  let code: number | undefined;
  void second.closed.then((close) => {
    code = close.code;
  });
  second.obey();
  for (const request of requests) second.send({ type: "job_submit", ...request });
  await until(() => second.results().length === 100 || code !== undefined, { what: "its results" });
  expect({ results: second.results().length, code }).toEqual({ results: 100, code: undefined });
}, 30_000);

test("16 MB of results pass a slow line without a disconnect", async () => {
  const proxy = await startProxy({ targetPort: Number(new URL(app.url).port) });
  onTestFinished(() => proxy.stop());
  const node = await fleet.node(app, { capacity: 80 });
  const downs: string[] = [];
  const session = new Session({
    url: `http://127.0.0.1:${proxy.port}`,
    on: { down: ({ reason }) => downs.push(reason) },
  });
  onTestFinished(() => session.close());
  const jobs = Array.from({ length: 80 }, () => session.submit({ pool: fleet.pool, payload: 1 }));
  await until(() => node.assignments().length === 80, { what: "all jobs at the node" });
  proxy.slow(2_000_000, "down");
  finishAll(node);
  const ended = await Promise.all(jobs);
  expect(ended.filter(({ success }) => success)).toHaveLength(80);
  expect(downs).toEqual([]);
}, 30_000);

test("results that are never acknowledged are not held in memory", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const heapMb = () => {
    collect();
    return process.memoryUsage().heapUsed / 1e6;
  };
  // The store is another process: what is left in this one is held by the connection.
  const outside = await openJobFleet("redis");
  onTestFinished(() => outside.stop());
  const at = outside.apps[0]!;
  const node = await outside.node(at, { capacity: 150 });
  const socket = new WebSocket(`${at.url.replace("http", "ws")}/ws/session`);
  onTestFinished(() => socket.close());
  await new Promise((resolve) => socket.once("open", resolve));
  let results = 0;
  socket.on("message", (data) => {
    if (String(data).includes('"type":"job_result"')) results += 1;
  });
  socket.send(JSON.stringify({ type: "session_init", protocol_version: 1 }));
  const before = heapMb();
  for (let job = 0; job < 150; job++) {
    const request = { request_id: `never-${job}`, pool: outside.pool, payload: null };
    socket.send(JSON.stringify({ type: "job_submit", ...request }));
  }
  await until(() => node.assignments().length === 150, { what: "all jobs at the node" });
  // Some at a time, less than a socket's buffer.
  for (let from = 0; from < 150; from += 30) {
    for (const assign of node.assignments().slice(from, from + 30))
      node.finish(assign, { success: true, body: BODY });
    await until(() => results === from + 30, { what: "30 more results" });
  }
  const held = () => Math.round(heapMb() - before);
  await until(() => held() < 10, {
    what: "30 MB of results to be let go",
    deadlineMs: 2_000,
  }).catch(() => {});
  expect(held()).toBeLessThan(10);
}, 30_000);
