import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { TestDatabase } from "../../../../tests/support/database.ts";
import { openAppDatabase, openApp, type TestApp } from "../../testing/apps.ts";
import { connectRawNode, type RawNode } from "../../testing/raw-node.ts";
import { connectRawSession, type RawSession } from "../../testing/raw-session.ts";

let database: TestDatabase;
let app: TestApp;
const open: Array<{ close(): Promise<void> }> = [];

beforeEach(async () => {
  database = await openAppDatabase();
  app = await openApp(database.uri);
});

afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()));
  await app.stop();
  await database.drop();
});

async function worker(words: Record<string, unknown> = {}): Promise<RawNode> {
  const node = await connectRawNode({ url: app.url });
  open.push(node);
  await node.register({ tags: {}, pools: ["gpu"], capacity: 2, ...words });
  return node;
}

async function session(): Promise<RawSession> {
  const raw = await connectRawSession({ url: app.url });
  open.push(raw);
  await raw.init();
  return raw;
}

describe("a job in one instance", () => {
  test("goes from a session to a node and back", async () => {
    const node = await worker();
    const client = await session();
    const request_id = randomUUID();
    client.send({ type: "job_submit", request_id, pool: "gpu", payload: { say: "hello" } });
    const accepted = await client.receive("job_accepted");
    expect(accepted).toMatchObject({ request_id, duplicate: false });
    const assigned = await node.receive("job_assign");
    expect(assigned).toMatchObject({ job_id: accepted.job_id, attempt_id: 1, request_id, pool: "gpu", payload: { say: "hello" } });
    const { job_id, attempt_id } = assigned;
    for (const type of ["job_ack", "job_started"]) node.send({ type, job_id, attempt_id });
    node.send({ type: "job_result", job_id, attempt_id, success: true, body: { heard: "hello" } });
    expect(await node.receive("job_result_ack")).toMatchObject({ job_id, outcome: "applied" });
    const result = await client.receive("job_result");
    expect(result).toMatchObject({ request_id, job_id, success: true, outcome: "succeeded", body: { heard: "hello" } });
    client.send({ type: "job_result_ack", job_id });
    const { status, body } = await app.ask("GET", `/api/v1/jobs/${job_id}`);
    expect(status).toBe(200);
    console.log(JSON.stringify(body, null, 1));
  });
});
