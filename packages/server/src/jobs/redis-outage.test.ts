import { type RedisServer, startRedis } from "@tenure/testing/stores/redis";
import { askRedis } from "@tenure/testing/stores/redis-ask";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";
import { recoveryShard } from "./store/keys.ts";

let redis: RedisServer;
let fleet: JobFleet;
let a: App;
let b: App;

const isReady = async () => (await fetch(new URL("/health/ready", a.url))).status === 200;
const patience = { deadlineMs: 60_000 };

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

  test("during an outage callers get a retryable error, sockets stay open, and reports count afterwards", async () => {
    const node = await fleet.node(a);
    const client = await fleet.session(b);
    const { job_id } = await client.accepted(client.submit());
    const assigned = await node.assigned();
    node.say("job_ack", assigned);
    await fleet.reached(job_id, "ACCEPTED");
    await redis.stop();
    const refused = client.submit({ request_id: "during-the-outage" });
    expect(await client.error(refused)).toMatchObject({ code: "DEPENDENCY_DOWN", retryable: true });
    node.say("job_result", assigned, { success: true, body: "sent during the outage" });
    await until(async () => !(await isReady()), { what: "not ready", ...patience });
    await redis.start();
    expect(await node.receive("job_result_ack")).toMatchObject({ outcome: "applied" });
    expect(await client.result({ job_id })).toMatchObject({ body: "sent during the outage" });
    await until(isReady, { what: "ready again", ...patience });
    client.submit({ request_id: refused.request_id });
    node.finish(await node.assigned(2));
    expect(await client.result(refused)).toMatchObject({ outcome: "succeeded" });
    expect([node, client].map(({ socket }) => socket.readyState)).toEqual([1, 1]);
  }, 300_000);

  test("an emptied Redis has all nodes and sessions again at once", async () => {
    const node = await fleet.node(a);
    const client = await fleet.session(b);
    await redis.restartEmpty();
    await until(isReady, { what: "ready again", ...patience });
    const request = client.submit();
    let isAccepted = false;
    client.accepted(request).then(
      () => {
        isAccepted = true;
      },
      () => {},
    );
    // What is refused while Redis comes back is asked again, as the SDK does.
    const asksAgain = () => {
      if (!isAccepted) client.submit({ request_id: request.request_id });
      return isAccepted;
    };
    await until(asksAgain, { everyMs: 500, what: "a job to be accepted", ...patience });
    node.obey();
    expect(await client.result(request)).toMatchObject({ outcome: "succeeded" });
    const { sessionId: session_id, resumeToken: resume_token } = client;
    const back = await fleet.session(a, { session_id, resume_token });
    expect(back.sessionId).toBe(client.sessionId);
  }, 300_000);

  test("a result whose session Redis had lost arrives when the session is written again", async () => {
    const node = await fleet.node(a);
    const client = await fleet.session(b);
    const { job_id } = await client.accepted(client.submit());
    const assigned = await node.assigned();
    const { prefix } = fleet;
    await askRedis(redis.port, `DEL ${prefix}:sessions:owner:{session:${client.sessionId}}`);
    node.finish(assigned);
    const waiting = `ZCARD ${prefix}:v1:sessions:{session:${client.sessionId}}:undelivered`;
    const due = `ZSCORE ${prefix}:v1:jobs:due:${recoveryShard(job_id)} ${job_id}`;
    const isLeft = async () =>
      (await askRedis(redis.port, waiting)).includes("1") &&
      (await askRedis(redis.port, due)).startsWith("$-1");
    await until(isLeft, {
      what: "a result in the session's set, and no instance that delivers it",
      ...patience,
    });
    await askRedis(redis.port, "CLIENT KILL TYPE normal");
    expect(await client.result({ job_id })).toMatchObject({ outcome: "succeeded" });
  }, 300_000);

  test("the client of a job lost with Redis' memory gets an error when its node is done", async () => {
    const node = await fleet.node(a);
    const client = await fleet.session(b);
    const request = client.submit();
    await client.accepted(request);
    const assigned = await node.assigned();
    node.say("job_ack", assigned);
    await fleet.reached(assigned.job_id, "ACCEPTED");
    await redis.restartEmpty();
    await until(isReady, { what: "ready again", ...patience });
    const isFound = async () =>
      (
        await askRedis(
          redis.port,
          `EXISTS ${fleet.prefix}:sessions:owner:{session:${client.sessionId}}`,
        )
      ).includes("1");
    await until(isFound, { what: "a session that can be found", ...patience });
    const channels = `PUBSUB CHANNELS ${fleet.prefix}:tell:*`;
    await until(async () => (await askRedis(redis.port, channels)).startsWith("*2"), {
      what: "two instances that listen",
      ...patience,
    });
    node.say("job_result", assigned, { success: true, body: "too late" });
    expect(await client.error(request)).toMatchObject({
      code: "DEPENDENCY_DOWN",
      retryable: true,
      job_id: assigned.job_id,
    });
    client.submit({ request_id: request.request_id });
    node.finish(await node.assigned(2));
    expect(await client.result(request)).toMatchObject({ outcome: "succeeded", body: "done" });
  }, 300_000);

  test("a full Redis is not ready, and is again when there is room", async () => {
    await askRedis(redis.port, "CONFIG SET maxmemory 1");
    await until(async () => !(await isReady()), { what: "not ready", ...patience });
    await askRedis(redis.port, "CONFIG SET maxmemory 0");
    await until(isReady, { what: "ready again", ...patience });
  });
});
