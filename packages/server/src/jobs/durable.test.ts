import type { TestDatabase } from "@tenure/testing/stores/database";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { type RedisServer, startRedis, uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { askRedis } from "@tenure/testing/stores/redis-ask";
import { until } from "@tenure/testing/until";
import { Redis } from "ioredis";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { openAppDatabase } from "../../testing/apps.ts";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

const patience = { deadlineMs: 30_000 };

describe("durable jobs and the loss of Redis's memory", () => {
  let redis: RedisServer;
  let fleet: JobFleet;
  let a: App;
  let b: App;
  let database: TestDatabase;
  let owner: pg.Client;
  beforeAll(async () => {
    redis = await startRedis();
    database = await openAppDatabase();
    fleet = await openJobFleet("memory", {
      instances: 2,
      env: {
        TENURE_SCHEDULER_PHASE2_ENABLED: "true",
        TENURE_SCHEDULER_PHASE2_REDIS_URL: redis.url,
        TENURE_SERVER_POSTGRES_URI: database.uri,
      },
    });
    [a, b] = fleet.apps as [App, App];
    owner = new pg.Client({ connectionString: database.uri });
    await owner.connect();
  });
  afterEach(() => fleet.rest());
  afterAll(async () => {
    await owner.end();
    await fleet.stop();
    await database.drop();
    await redis.discard();
  });

  const submit = async (at: App, more: object = {}) => {
    const id = crypto.randomUUID();
    const body = { pool: fleet.pool, request_id: id, payload: { n: 1 }, ...more };
    return { ...(await fleet.ask(at, "POST", "/jobs", body)), request: body };
  };
  const read = async (at: App, jobId: string) =>
    (await fleet.ask(at, "GET", `/jobs/${jobId}`)).body;
  const ended = (at: App, jobId: string) =>
    until(async () => (await read(at, jobId)).outcome, { what: "the end of the job", ...patience });

  test("a job that waits runs after it, at a higher attempt", async () => {
    const { body: job } = await submit(a);
    await askRedis(redis.port, "FLUSHALL");
    await until(async () => (await read(b, job.job_id)).attempt_id === 2, {
      what: "the job to be written again",
      ...patience,
    });
    const node = await fleet.node(b);
    const assigned = await node.assigned();
    expect(assigned).toMatchObject({ job_id: job.job_id, attempt_id: 2, payload: { n: 1 } });
    node.finish(assigned, { success: true, body: "done" });
    await ended(a, job.job_id);
    expect(await read(a, job.job_id)).toMatchObject({ outcome: "succeeded", body: "done" });
  });

  test("a job that runs ends once, by one of its attempts", async () => {
    const node = await fleet.node(a);
    const { body: job } = await submit(a);
    const assigned = await node.assigned();
    await askRedis(redis.port, "FLUSHALL");
    node.finish(assigned, { success: true, body: "first" });
    node.obey();
    await ended(b, job.job_id);
    const { outcome } = await read(b, job.job_id);
    expect(outcome).toBe("succeeded");
    expect(await read(a, job.job_id)).toMatchObject({ outcome });
  });

  test("the result of a job that has ended is read from its row, also by the same request", async () => {
    const node = await fleet.node(a);
    node.obey();
    const { body: job, request } = await submit(a);
    await ended(a, job.job_id);
    await askRedis(redis.port, "FLUSHALL");
    const known = await read(b, job.job_id);
    expect(known).toMatchObject({ outcome: "succeeded", attempt_id: 1, state: "RELEASED" });
    const again = await fleet.ask(b, "POST", "/jobs", request);
    expect(again.body).toMatchObject({ job_id: job.job_id, outcome: "succeeded" });
    const other = await fleet.ask(b, "POST", "/jobs", { ...request, payload: 2 });
    expect(other.body.error).toMatchObject({ code: "REQUEST_ID_REUSED" });
    expect(node.assignments(job.job_id)).toHaveLength(1);
  });

  test("a job of a session is lost unless it asked for durability", async () => {
    const session = await fleet.session(a);
    const plain = session.submit();
    const durable = session.submit({ durable: true });
    const { job_id } = await session.accepted(durable);
    const { job_id: plainId } = await session.accepted(plain);
    await askRedis(redis.port, "FLUSHALL");
    const node = await fleet.node(b);
    node.obey();
    expect(await session.result({ job_id })).toMatchObject({ outcome: "succeeded" });
    expect(node.assignments(plainId)).toHaveLength(0);
    expect((await fleet.ask(a, "GET", `/jobs/${plainId}`)).status).toBe(404);
  });

  test("a request submitted durable and not durable at once has one job", async () => {
    const session = await fleet.session(a);
    const node = await fleet.node(b, { capacity: 100 });
    node.obey();
    const requests = Array.from({ length: 40 }, () => crypto.randomUUID());
    const jobs = await Promise.all(
      requests.map(async (request_id) => {
        const words = { request_id, payload: 1, pool: fleet.pool };
        const [one, other, third] = await Promise.all([
          session.accepted(session.submit(words)),
          submit(b, words),
          submit(a, words),
        ]);
        return new Set([one.job_id, other.body.job_id, third.body.job_id]).size;
      }),
    );
    expect(jobs).toEqual(requests.map(() => 1));
  });

  test("a row that its submit left goes if another job has the request, and runs if none has", async () => {
    const session = await fleet.session(a);
    const node = await fleet.node(b, { capacity: 100 });
    node.obey();
    const [taken, free] = [crypto.randomUUID(), crypto.randomUUID()];
    const { job_id } = await session.accepted(session.submit({ request_id: taken }));
    await session.result({ job_id });
    const { rows } = await owner.query(
      `insert into job (request_id, pool, payload, state, is_decided, body_hash)
       select unnest($1::text[]), $2, '1', 'open', false, 'hash' returning job_id, request_id`,
      [[taken, free], fleet.pool],
    );
    const idOf = (request: string) => rows.find(({ request_id }) => request_id === request).job_id;
    await askRedis(redis.port, `DEL ${fleet.prefix}:v1:jobs:{mark:0}`);
    await ended(a, idOf(free));
    expect(await read(a, idOf(free))).toMatchObject({ outcome: "succeeded", attempt_id: 2 });
    expect((await fleet.ask(a, "GET", `/jobs/${idOf(taken)}`)).status).toBe(404);
    expect(node.assignments(idOf(taken))).toEqual([]);
  });

  test("a job that Redis does not have is cancelled in its row", async () => {
    const { body: job } = await submit(a);
    await askRedis(redis.port, "FLUSHALL");
    const cancelled = await fleet.ask(b, "POST", `/jobs/${job.job_id}/cancel`);
    expect(cancelled.body).toMatchObject({ outcome: "cancelled" });
    const node = await fleet.node(a);
    node.obey();
    const { body: next } = await submit(a);
    await ended(a, next.job_id);
    expect(node.assignments(job.job_id)).toEqual([]);
    expect(await read(a, job.job_id)).toMatchObject({ outcome: "cancelled" });
  });
});

describe("durable jobs and a store that starts again", () => {
  test("a Redis that brings back an earlier state runs no job twice and loses none", async () => {
    const redis = await startRedis();
    const client = new Redis(redis.port);
    const fleet = await openJobFleet("memory", {
      env: {
        TENURE_SCHEDULER_PHASE2_ENABLED: "true",
        TENURE_SCHEDULER_PHASE2_REDIS_URL: redis.url,
      },
    });
    const a = fleet.apps[0]!;
    try {
      const node = await fleet.node(a, { capacity: 4 });
      const jobs = await Promise.all([1, 2].map(() => submitTo(fleet, a)));
      const [ended, running] = await Promise.all([node.assigned(1), node.assigned(2)]);
      const keys = await client.keys("*");
      const state = await Promise.all(keys.map((key) => client.dumpBuffer(key)));
      node.finish(ended, { success: true, body: "before" });
      await untilEnded(fleet, a, ended.job_id);
      const after = await submitTo(fleet, a);
      const back = client.multi().flushall();
      for (const [at, key] of keys.entries()) back.restore(key, 0, state[at]!);
      await back.exec();
      node.obey();
      node.finish(running, { success: true, body: "kept" });
      for (const { job_id } of [...jobs, after]) await untilEnded(fleet, a, job_id);
      const of = async (jobId: string) => (await fleet.ask(a, "GET", `/jobs/${jobId}`)).body;
      expect(await of(ended.job_id)).toMatchObject({ outcome: "succeeded", body: "before" });
      expect(await of(running.job_id)).toMatchObject({ outcome: "succeeded" });
      expect(await of(after.job_id)).toMatchObject({ outcome: "succeeded" });
    } finally {
      client.disconnect();
      await fleet.stop();
      await redis.discard();
    }
  }, 120_000);

  test("a server without Redis goes on with its durable jobs after a restart", async () => {
    const fleet = await openJobFleet("memory");
    try {
      const first = fleet.apps[0]!;
      const jobs = await Promise.all([1, 2, 3].map(() => submitTo(fleet, first)));
      await fleet.apps.shift()!.stop();
      const second = await fleet.start();
      const node = await fleet.node(second, { capacity: 4 });
      node.obey();
      for (const { job_id } of jobs) await untilEnded(fleet, second, job_id);
      expect(node.assignments().map(({ attempt_id }) => attempt_id)).toEqual([2, 2, 2]);
    } finally {
      await fleet.stop();
    }
  }, 120_000);
});

async function submitTo(fleet: JobFleet, at: App): Promise<{ job_id: string }> {
  const body = { pool: fleet.pool, request_id: crypto.randomUUID(), payload: 1 };
  return (await fleet.ask(at, "POST", "/jobs", body)).body;
}

const untilEnded = (fleet: JobFleet, at: App, jobId: string) =>
  until(async () => (await fleet.ask(at, "GET", `/jobs/${jobId}`)).body.outcome, {
    what: `the end of ${jobId}`,
    ...patience,
  });

describe("durable jobs and a Postgres that is away", () => {
  let postgres: PostgresServer;
  let fleet: JobFleet;
  let a: App;
  beforeAll(async () => {
    postgres = await startPostgres();
    fleet = await openJobFleet("memory", {
      instances: 1,
      env: {
        TENURE_SERVER_POSTGRES_URI: postgres.uri(),
        TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: uniqueKeyPrefix(),
      },
    });
    a = fleet.apps[0]!;
  });
  afterEach(() => fleet.rest());
  afterAll(async () => {
    await fleet.stop();
    await postgres.discard();
  });

  test("durable submits are refused, others go on, and a result waits for it", async () => {
    const node = await fleet.node(a, { capacity: 1 });
    const session = await fleet.session(a);
    const { job_id } = await session.accepted(session.submit({ durable: true }));
    const assigned = await node.assigned();
    await postgres.kill("fast");
    node.finish(assigned, { success: true, body: "kept" });
    const refused = session.submit({ durable: true });
    expect(await session.error(refused)).toMatchObject({ code: "DEPENDENCY_DOWN" });
    // The slot is free for a job that is not durable.
    const plain = await session.accepted(session.submit());
    node.finish(await node.assigned(1, plain.job_id));
    expect(await session.result(plain)).toMatchObject({ outcome: "succeeded" });
    expect(session.results(job_id)).toEqual([]);
    await postgres.start();
    expect(await session.result({ job_id })).toMatchObject({ body: "kept", attempt_id: 1 });
  }, 120_000);
});
