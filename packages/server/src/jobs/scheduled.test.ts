import { until } from "@tenure/testing/until";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { openAppDatabase } from "../../testing/apps.ts";
import { type JobFleet, openJobFleet } from "../../testing/job-fleet.ts";
import type { App } from "../app.ts";

const patience = { deadlineMs: 30_000 };

describe("jobs that wait in the table", () => {
  let fleet: JobFleet;
  let a: App;
  let database: Awaited<ReturnType<typeof openAppDatabase>>;
  let owner: pg.Client;
  beforeAll(async () => {
    database = await openAppDatabase();
    fleet = await openJobFleet("redis", {
      instances: 2,
      env: { TENURE_SERVER_POSTGRES_URI: database.uri },
    });
    a = fleet.apps[0]!;
    owner = new pg.Client({ connectionString: database.uri });
    await owner.connect();
  });
  afterEach(() => fleet.rest());
  afterAll(async () => {
    await owner.end();
    await fleet.stop();
    await database.drop();
  });

  const post = (more: object) => fleet.ask(a, "POST", "/jobs", { ...fresh(), ...more });
  const fresh = () => ({ pool: fleet.pool, request_id: crypto.randomUUID(), payload: 1 });
  const read = async (jobId: string) => (await fleet.ask(a, "GET", `/jobs/${jobId}`)).body;
  const ended = (jobId: string) =>
    until(async () => (await read(jobId)).outcome, { what: "the end of the job", ...patience });

  test("a delayed job runs when it is due, and its session gets the result", async () => {
    const session = await fleet.session(a);
    const node = await fleet.node(a);
    node.obey();
    const startedMs = performance.now();
    const { job_id } = await session.accepted(session.submit({ delay_ms: 1_500 }));
    expect(await session.result({ job_id })).toMatchObject({ outcome: "succeeded", attempt_id: 1 });
    expect(performance.now() - startedMs).toBeGreaterThan(1_400);
  });

  test("a job of tonight can be repeated, and cancelled before it is due", async () => {
    const body = { ...fresh(), run_at: new Date(Date.now() + 3_600_000).toISOString() };
    const first = await fleet.ask(a, "POST", "/jobs", body);
    expect(first.body).toMatchObject({ state: "CREATED" });
    const again = await fleet.ask(a, "POST", "/jobs", body);
    expect(again.body.job_id).toBe(first.body.job_id);
    await fleet.ask(a, "POST", `/jobs/${first.body.job_id}/cancel`);
    expect(await read(first.body.job_id)).toMatchObject({ outcome: "cancelled" });
  });

  test.each([
    ["in the past", { run_at: "2001-01-01T00:00:00.000Z" }],
    ["in the year 9999", { run_at: "9999-12-31T23:59:59.999Z" }],
    ["no time", { run_at: "tomorrow" }],
    ["a negative delay", { delay_ms: -1 }],
    ["a delay of years", { delay_ms: 2 ** 40 }],
    ["both", { delay_ms: 1, run_at: new Date(Date.now() + 60_000).toISOString() }],
    ["not durable", { delay_ms: 1, durable: false }],
    ["a negative back-off", { retry: { backoff_ms: -1 } }],
    ["no attempts", { retry: { attempts: 0 } }],
  ])("%s is refused, and nothing is written", async (_, words) => {
    const before = await owner.query("select count(*) from job");
    const { status, body } = await post(words);
    expect({ status, code: body.error?.code }).toEqual({ status: 400, code: "INVALID_REQUEST" });
    expect((await owner.query("select count(*) from job")).rows).toEqual(before.rows);
  });

  test.each([
    true,
    false,
  ])("a failed attempt is repeated after the back-off, durable %s", async (durable) => {
    const session = await fleet.session(a);
    const node = await fleet.node(a);
    const retry = { attempts: 3, backoff_ms: 2_000, factor: 1 };
    const { job_id } = await session.accepted(session.submit({ durable, retry }));
    const fail = async (nth: number) => {
      const assigned = await node.assigned(nth, job_id);
      expect(assigned.attempt_id).toBe(nth);
      const error = { code: "BUSY", message: "later", retryable: true };
      node.finish(assigned, { success: false, error });
      return performance.now();
    };
    const failedMs = await fail(1);
    await fleet.reached(job_id, "CREATED", 2);
    const { rows } = await owner.query("select state, attempt_id from job where job_id = $1", [
      job_id,
    ]);
    expect(rows).toEqual(durable ? [{ state: "scheduled", attempt_id: 2 }] : []);
    await fail(2);
    expect(performance.now() - failedMs).toBeGreaterThan(950);
    await fail(3);
    const result = await session.result({ job_id });
    expect(result).toMatchObject({ outcome: "attempts_exhausted", attempt_id: 3 });
  });

  test("a job enqueued by SQL runs once if its transaction commits, and never if not", async () => {
    const node = await fleet.node(a);
    node.obey();
    const role = `enqueuer_${process.pid}`;
    await owner.query(`create role ${role} login password 'x'`);
    await owner.query("insert into job_enqueuer values ($1, 'default', $2)", [role, [fleet.pool]]);
    const uri = new URL(database.uri);
    uri.username = role;
    uri.password = "x";
    const caller = new pg.Client({ connectionString: uri.href });
    await caller.connect();
    try {
      const enqueue = async (pool: string, options: object = {}) =>
        (await caller.query("select tenure_enqueue($1, $2, $3) as id", [pool, { n: 1 }, options]))
          .rows[0].id as string;
      await caller.query("begin");
      const undone = await enqueue(fleet.pool);
      await caller.query("rollback");
      await caller.query("begin");
      const jobId = await enqueue(fleet.pool, { request_id: "r", priority: 3, timeout_ms: 5_000 });
      const committedMs = performance.now();
      await caller.query("commit");
      await ended(jobId);
      expect(performance.now() - committedMs).toBeLessThan(10_000);
      expect(node.assignments(jobId)).toMatchObject([{ payload: { n: 1 }, timeout_ms: 5_000 }]);
      expect(node.assignments(undone)).toEqual([]);
      const same = { request_id: "r", priority: 3, timeout_ms: 5_000 };
      expect(await enqueue(fleet.pool, same)).toBe(jobId);
      await expect(enqueue(fleet.pool, { request_id: "r" })).rejects.toThrow(/^REQUEST_ID_REUSED/);
      const large = JSON.stringify("x".repeat(262_144));
      await expect(
        caller.query("select tenure_enqueue($1, $2)", [fleet.pool, large]),
      ).rejects.toThrow(/^PAYLOAD_TOO_LARGE: larger than 262144 bytes/);
      await expect(enqueue(fleet.pool, { pending_ms: 3_600_001 })).rejects.toThrow(/^INVALID/);
      await expect(enqueue("other")).rejects.toThrow(/^FORBIDDEN/);
      await expect(enqueue(fleet.pool, { priority: 10 })).rejects.toThrow(/^INVALID_REQUEST/);
      await expect(enqueue(fleet.pool, { prio: 1 })).rejects.toThrow(/^INVALID_REQUEST: unknown/);
      await expect(enqueue(fleet.pool, { run_at: "9999-01-01" })).rejects.toThrow(/^INVALID_REQ/);
      await expect(caller.query("select * from job")).rejects.toThrow(/permission denied/);
    } finally {
      await caller.end();
      await owner.query("delete from job_enqueuer");
      await owner.query(`drop role ${role}`);
    }
  });

  test.each([
    ["a payload that is not JSON", "payload", "{"],
    ["a pool of spaces", "pool", "a b"],
    ["a priority of a million", "priority", "1000000"],
    ["a spec that is no object", "spec", '"x"'],
    ["a timeout of words", "spec", '{"timeout_ms":"long"}'],
  ])("a row by hand with %s fails, and others go on", async (_, column, value) => {
    const values = { pool: fleet.pool, payload: "1", priority: "0", spec: "{}", [column]: value };
    const { rows } = await owner.query(
      "insert into job (pool, payload, priority, spec) values ($1, $2, $3, $4) returning job_id",
      [values.pool, values.payload, values.priority, values.spec],
    );
    const node = await fleet.node(a);
    node.obey();
    await ended(rows[0].job_id);
    expect(await read(rows[0].job_id)).toMatchObject({
      outcome: "failed",
      error: { code: "INVALID_REQUEST" },
    });
    const { body: next } = await post({ durable: true });
    await ended(next.job_id);
    expect(await read(next.job_id)).toMatchObject({ outcome: "succeeded" });
  });
});
