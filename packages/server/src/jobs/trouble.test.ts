import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { type RedisServer, startRedis } from "../../../../tests/support/redis.ts";
import { askRedis } from "../../../../tests/support/redis-ask.ts";
import { type JobFleet, openJobFleet, patiently } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

// With other work on the machine everything takes ten times as long.
vi.setConfig({ testTimeout: 180_000, hookTimeout: 300_000 });

let redis: RedisServer;
let fleet: JobFleet;
let a: App;
let b: App;

const isReady = async () => (await fetch(new URL("/health/ready", a.url))).status === 200;

describe("Redis in trouble", () => {
  beforeAll(async () => {
    redis = await startRedis();
    fleet = await openJobFleet("memory", {
      instances: 2,
      env: {
        TENURE_SCHEDULER_PHASE2_ENABLED: "true",
        TENURE_SCHEDULER_PHASE2_REDIS_URL: redis.url,
        TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "60",
      },
    });
    [a, b] = fleet.apps as [App, App];
  });
  afterEach(() => fleet.rest());
  afterAll(async () => {
    await fleet.stop();
    await redis.discard();
  });

  test("callers are told to try again, sockets are kept, and what was said meanwhile counts", async () => {
    const node = await fleet.node(a);
    const client = await fleet.session(b);
    const { job_id } = await client.accepted(client.submit());
    const assigned = await node.assigned();
    node.say("job_ack", assigned);
    await patiently(() => client.states(job_id).includes("ACCEPTED"), { what: "ACCEPTED" });
    await redis.stop();
    const refused = client.submit({ request_id: "during-the-outage" });
    expect(await client.error(refused)).toMatchObject({ code: "DEPENDENCY_DOWN", retryable: true });
    node.say("job_result", assigned, { success: true, body: "said to nobody" });
    await patiently(async () => !(await isReady()), { what: "not ready" });
    await redis.start();
    expect(await node.receive("job_result_ack")).toMatchObject({ outcome: "applied" });
    expect(await client.result({ job_id })).toMatchObject({ body: "said to nobody" });
    await patiently(isReady, { what: "ready again" });
    client.submit({ request_id: refused.request_id });
    node.finish(await node.assigned(2));
    expect(await client.result(refused)).toMatchObject({ outcome: "succeeded" });
    expect([node, client].map(({ socket }) => socket.readyState)).toEqual([1, 1]);
  });

  test("an emptied Redis knows everybody again at once", async () => {
    const node = await fleet.node(a);
    const client = await fleet.session(b);
    await redis.restartEmpty();
    await patiently(isReady, { what: "ready again" });
    const request = await patiently(
      async () => {
        const asked = client.submit();
        await client.accepted(asked);
        return asked;
      },
      { what: "a job to be accepted" },
    );
    node.obey();
    expect(await client.result(request)).toMatchObject({ outcome: "succeeded" });
    const { sessionId: session_id, resumeToken: resume_token } = client;
    const back = await fleet.session(a, { session_id, resume_token });
    expect(back.sessionId).toBe(client.sessionId);
  });

  test("a full Redis is not ready, and is again when there is room", async () => {
    await askRedis(redis.port, "CONFIG SET maxmemory 1");
    await patiently(async () => !(await isReady()), { what: "not ready" });
    await askRedis(redis.port, "CONFIG SET maxmemory 0");
    await patiently(isReady, { what: "ready again" });
  });
});
