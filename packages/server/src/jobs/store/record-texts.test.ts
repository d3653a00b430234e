import { hash, randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { lost, NODE_A, NODE_B, newJob, newJobId } from "../../../testing/jobs.ts";
import { SKIPPED } from "../../store/call.ts";
import type { RedisStore } from "../../store/redis.ts";
import type { JobStep } from "../policy/job-table.ts";
import { bind } from "./binding-store.ts";
import { dropBody, endDue } from "./ended-store.ts";
import { TIMELINE_MAX } from "./job-codec.ts";
import {
  createJob,
  dropJob,
  listen,
  type NewJob,
  persistJob,
  readAttempts,
  readJob,
  UNBOUND_EXPIRY_MS,
  voidJob,
} from "./job-store.ts";
import { jobKeys, keysOfJob, recoveryShard } from "./keys.ts";
import {
  type Advanced,
  advance,
  advanceIf,
  forgiveAttempt,
  isApplied,
  startAdvance,
} from "./transition-store.ts";

const RETENTION_MS = 3_600_000;
const steps = {
  dispatched: { event: "dispatched" },
  ack: { event: "ack" },
  started: { event: "started" },
  result: { event: "result", outcome: "succeeded" },
  released: { event: "released", keepMs: RETENTION_MS },
} satisfies Record<string, JobStep>;

test("every script over a record sees what an earlier script of its batch has deferred", () => {
  const folder = new URL("./lua/", import.meta.url);
  const scripts = readdirSync(folder).map((name) => readFileSync(new URL(name, folder), "utf8"));
  const overRecords = scripts.filter((text) => /KEYS\[/.test(text) && /\bfsm\b/.test(text));
  expect(overRecords.length).toBeGreaterThanOrEqual(10);
  for (const text of overRecords) {
    // Before this a file defines functions, which it calls later.
    const body = text.slice(text.indexOf("KEYS[1]"));
    const first = body.search(/redis\.call|read_job\(/);
    const seen = [body.indexOf("write_now(fsm)"), body.indexOf("deferred[fsm]")];
    expect(Math.min(...seen.filter((at) => at >= 0))).toBeLessThan(first);
  }
});

describe("scripts of one tick over one record", () => {
  let store: TestHot;
  let client: RedisStore["client"];
  beforeAll(async () => {
    store = await openTestHot("redis");
    ({ client } = store.hot as RedisStore);
  });
  afterAll(() => store.hot.close());

  const at = (jobId: string, step: JobStep, nodeId = NODE_A) =>
    advance(store.hot, {
      jobId,
      attemptId: 1,
      nodeId,
      instanceId: "i1",
      steps: [step],
      result: '"r"',
    });
  const ttl = (key: string) => client.pttl(key);

  test("a created job that goes no further expires; one that is dispatched with it does not", async () => {
    const [waits, goes] = [newJob(), newJob()];
    await Promise.all([
      createJob(store.hot, waits),
      createJob(store.hot, goes),
      at(goes.jobId, steps.dispatched),
    ]);
    const keys = keysOfJob(store.hot.prefix, waits.jobId);
    for (const key of [keys.fsm, keys.payload]) {
      expect(await ttl(key)).toBeGreaterThan(UNBOUND_EXPIRY_MS / 2);
      expect(await ttl(key)).toBeLessThanOrEqual(UNBOUND_EXPIRY_MS);
    }
    const others = keysOfJob(store.hot.prefix, goes.jobId);
    expect([await ttl(others.fsm), await ttl(others.payload)]).toEqual([-1, -1]);
    expect(await readJob(store.hot, goes.jobId, { payload: true })).toMatchObject({
      state: "DISPATCHED",
      persisted: true,
      payload: goes.payload,
    });
  });

  test("from its creation to its release", async () => {
    const job = newJob();
    const { jobId } = job;
    await Promise.all([createJob(store.hot, job), at(jobId, steps.dispatched)]);
    const [, ended] = await Promise.all([
      listen(store.hot, jobId, "i9"),
      at(jobId, steps.result),
      at(jobId, steps.released),
    ]);
    expect((ended as Advanced).listeners).toEqual(["i9"]);
    const keys = keysOfJob(store.hot.prefix, jobId);
    for (const key of [keys.fsm, keys.result]) {
      expect(await ttl(key)).toBeGreaterThan(RETENTION_MS / 2);
      expect(await ttl(key)).toBeLessThanOrEqual(RETENTION_MS);
    }
    expect(await client.exists(keys.payload, keys.timeline)).toBe(0);
    const record = await readJob(store.hot, jobId, { result: true, timeline: true });
    expect(record).toMatchObject({ state: "RELEASED", nodeId: NODE_A, result: '"r"' });
    expect(record!.timeline.map(({ state }) => state)).toEqual([
      "CREATED",
      "DISPATCHED",
      "FINISHED",
      "RELEASED",
    ]);
  });

  test("each reads what the one before it has written", async () => {
    const { hot } = store;
    const job = newJob();
    const { jobId } = job;
    const [, first, , [now], record, again, dropped, voided] = await Promise.all([
      createJob(hot, job),
      at(jobId, steps.dispatched),
      at(jobId, steps.ack),
      readAttempts(hot, [{ jobId }]),
      readJob(hot, jobId, { payload: true, timeline: true }),
      createJob(hot, job),
      dropJob(hot, jobId),
      voidJob(hot, jobId),
    ]);
    expect(first).toMatchObject({ answers: ["applied"] });
    expect(now).toMatchObject({ state: "ACCEPTED", nodeId: NODE_A });
    expect(record).toMatchObject({ state: "ACCEPTED", payload: job.payload });
    expect(record!.timeline).toHaveLength(3);
    expect([again.outcome, dropped, voided]).toEqual(["duplicate", "kept", "exists"]);
    const words = { ...lost, code: "node_lost", lost: true } as JobStep;
    const [, forgiven] = await Promise.all([
      at(jobId, words),
      forgiveAttempt(hot, { jobId, attemptId: 1, nodeId: NODE_A }),
    ]);
    expect(forgiven).toBe(0);
  });

  test("a job that is bound, dropped, or loses its body in the batch that changes it", async () => {
    const { hot } = store;
    const [bound, gone, ended] = [newJob(), newJob(), newJob()];
    await Promise.all([
      createJob(hot, bound),
      persistJob(hot, bound.jobId, { turnId: "t1" }),
      createJob(hot, gone),
      dropJob(hot, gone.jobId),
      createJob(hot, ended),
      at(ended.jobId, steps.dispatched),
      at(ended.jobId, steps.result),
      dropBody(hot, ended.jobId),
    ]);
    expect(await readJob(hot, bound.jobId)).toMatchObject({ turnId: "t1", persisted: true });
    expect(await ttl(keysOfJob(hot.prefix, bound.jobId).fsm)).toBe(-1);
    expect(await client.exists(...Object.values(keysOfJob(hot.prefix, gone.jobId)))).toBe(0);
    const { fsm, result } = keysOfJob(hot.prefix, ended.jobId);
    expect(await client.exists(result)).toBe(0);
    expect(await client.hmget(fsm, "result", "timeline")).toEqual(['"r"', null]);
  });

  const outcomes = async (calls: readonly Promise<unknown>[]) =>
    (await Promise.allSettled(calls)).map(({ status }) => status);
  const ALL_DONE = ["fulfilled", "fulfilled", "fulfilled"];
  const life = (job: NewJob) => [
    createJob(store.hot, job),
    at(job.jobId, steps.dispatched),
    at(job.jobId, steps.result),
  ];

  /** What another program may have written under a key of a job. */
  const poisons = {
    string: (key: string) => client.set(key, "x"),
    list: (key: string) => client.rpush(key, "x"),
    set: (key: string) => client.sadd(key, "x"),
    zset: (key: string) => client.zadd(key, 1, "x"),
    hash: (key: string) => client.hset(key, "x", "y"),
  };
  const poisoned = Object.keys(poisons).flatMap((type) =>
    (["fsm", "payload", "result", "timeline"] as const).map((key) => ({
      type: type as keyof typeof poisons,
      key,
    })),
  );

  test.each(poisoned)("a $type at the key $key fails no call of another job", async (poison) => {
    const [before, bad, after] = [newJob(), newJob(), newJob()];
    await poisons[poison.type](keysOfJob(store.hot.prefix, bad.jobId)[poison.key]);
    const [first, own, last] = await Promise.all(
      [before, bad, after].map((job) => outcomes(life(job))),
    );
    expect([first, last]).toEqual([ALL_DONE, ALL_DONE]);
    // The record itself must be a hash. Other keys are overwritten, or only read.
    const fails = poison.key === "fsm" && poison.type !== "hash";
    expect(own).toEqual(fails ? ["rejected", "rejected", "rejected"] : ALL_DONE);
    const read = (job: NewJob) => readJob(store.hot, job.jobId, { result: true, timeline: true });
    const [one, , other] = await Promise.allSettled([before, bad, after].map(read));
    for (const each of [one, other])
      expect(each).toMatchObject({ value: { state: "FINISHED", result: '"r"' } });
  });

  test("a record that cannot be written at the end of its batch fails the calls that changed it", async () => {
    const { hot } = store;
    const [before, bad, after, seen] = [newJob(), newJob(), newJob(), newJob()];
    const created = [before, bad, after, seen].map((job) => [
      createJob(hot, job),
      at(job.jobId, steps.dispatched),
    ]);
    await Promise.all(created.flat());
    const call = (jobId: string, step: JobStep) => ({
      jobId,
      attemptId: 1,
      nodeId: NODE_A,
      instanceId: "i1",
      steps: [step],
    });
    // Redis refuses such an expiry.
    const refused = { event: "released", keepMs: 1e300 } as const;
    const end = ({ jobId }: NewJob, released: JobStep) => {
      const result = startAdvance(hot, call(jobId, steps.result));
      const release = advanceIf(hot, { all: [isApplied(result)] }, call(jobId, released));
      return [result, release] as const;
    };
    const sound = end(before, steps.released);
    const atEnd = end(bad, refused);
    const dependent = advanceIf(
      hot,
      { all: [isApplied(atEnd[1])] },
      call(after.jobId, steps.result),
    );
    const comeUpon = end(seen, refused);
    const reader = readAttempts(hot, [seen]);
    const tooLate = advanceIf(
      hot,
      { all: [isApplied(comeUpon[1])] },
      call(before.jobId, steps.result),
    );
    const calls = [...sound, ...atEnd, dependent, ...comeUpon].map(({ answer }) => answer);
    expect(await outcomes([...calls, reader])).toEqual([
      ...["fulfilled", "fulfilled"],
      ...["rejected", "rejected"],
      "fulfilled", // It has run: its own reply is true.
      ...["rejected", "rejected"],
      "rejected",
    ]);
    expect(await tooLate.answer).toBe(SKIPPED);
    expect(await readJob(hot, before.jobId)).toMatchObject({ state: "RELEASED" });
    expect(await readJob(hot, after.jobId)).toMatchObject({ state: "FINISHED" });
  });
});

/** By MEMORY USAGE, 1,385; docs/benchmarks.md explains them. 1,860 before the timeline was a field and the spec was trimmed. */
const ENDED_BYTES_MAX = 1_400;

test("an ended job takes a bounded part of Redis besides its result", async () => {
  const { hot } = await openTestHot("redis");
  const { client } = hot as RedisStore;
  const prefix = "tenure";
  const named = { ...hot, prefix } as typeof hot;
  const job = newJob({
    requestId: randomUUID(),
    bodyHash: hash("sha256", "body", "base64url"),
    token: "local operator",
    sessionId: randomUUID().replaceAll("-", ""),
    originInstanceId: "i-2e186e055b69",
  });
  const { jobId, tenant, requestId, bodyHash } = job;
  const about = { jobId, attemptId: 1, nodeId: NODE_A, instanceId: job.originInstanceId };
  const text = '{"body":{"beganMs":1795034719740.5}}';
  await Promise.all([
    createJob(named, job),
    bind(named, { tenant, requestId, jobId, bodyHash, ttlMs: RETENTION_MS }),
  ]);
  const [, ended] = [
    await advance(named, { ...about, steps: [steps.dispatched] }),
    await advance(named, {
      ...about,
      steps: [steps.ack, steps.started, steps.result],
      result: text,
    }),
  ];
  expect(ended).toMatchObject({ state: "FINISHED" });
  await advance(named, { ...about, steps: [steps.released] });
  const shard = recoveryShard(jobId);
  const others = Array.from({ length: 300 }, () => newJobId());
  const all = [jobId, ...others].map((each) => ({ jobId: each, tenant, bytes: text.length }));
  await endDue(named, shard, all, { keepMs: RETENTION_MS, leaves: true });

  const size = (key: string) => client.memory("USAGE", key, "SAMPLES", 0) as Promise<number>;
  const keys = keysOfJob(prefix, jobId);
  const parts = {
    fsm: await size(keys.fsm),
    result: (await size(keys.result)) - text.length,
    binding: await size(jobKeys.binding(prefix, { tenant, requestId })),
    bodies: Math.ceil((await size(jobKeys.bodies(prefix, shard))) / all.length),
  };
  const sum = Object.values(parts).reduce((bytes, part) => bytes + part, 0);
  const left = [...Object.values(keys), jobKeys.binding(prefix, { tenant, requestId })];
  for (const key of [...left, jobKeys.bodies(prefix, shard), jobKeys.ended(prefix, shard)])
    await client.del(key);
  await hot.close();
  expect(sum, JSON.stringify(parts)).toBeLessThanOrEqual(ENDED_BYTES_MAX);
});

describe.each(["redis", "redis-cluster"] as const)("records of instances of 0.1: %s", (kind) => {
  let store: TestHot;
  let client: RedisStore["client"];
  beforeAll(async () => {
    store = await openTestHot(kind);
    ({ client } = store.hot as RedisStore);
  });
  afterAll(() => store.hot.close());

  /** A step as release 0.1.0 writes it: the timeline is a list. */
  async function oldStep(
    jobId: string,
    { state, at, entry }: { state: string; at: (words: string[]) => void; entry: string },
  ): Promise<void> {
    const { fsm, timeline } = keysOfJob(store.hot.prefix, jobId);
    const words = (await client.hget(fsm, "at"))!.split(" ");
    const nowMs = String(Number(words[5]) + 10);
    words[3] = "1";
    words[5] = nowMs;
    at(words);
    await client.hset(fsm, "state", state, "at", words.join(" "));
    await client.rpush(timeline, `${nowMs}|${entry}`);
  }
  const newStep = async (jobId: string, attemptId: number, nodeId: string, step: JobStep) => {
    store.advance(20);
    return advance(store.hot, { jobId, attemptId, nodeId, instanceId: "new", steps: [step] });
  };
  const timelineOf = async (jobId: string) =>
    (await readJob(store.hot, jobId, { timeline: true }))!.timeline.map(
      ({ state, attempt_id, node_id, instance_id }) =>
        [state, attempt_id, node_id?.[0], instance_id].join(" ").trim(),
    );

  test("steps of both releases in any order are one timeline, and the list expires with the record", async () => {
    const job = newJob();
    const { jobId } = job;
    const keys = keysOfJob(store.hot.prefix, jobId);
    await createJob(store.hot, job);
    await client.persist(keys.fsm);
    await oldStep(jobId, {
      state: "DISPATCHED",
      at: (words) => {
        words[4] = NODE_A;
      },
      entry: `DISPATCHED|1|${NODE_A}|old|`,
    });
    await newStep(jobId, 1, NODE_A, steps.ack);
    await newStep(jobId, 1, NODE_A, { ...lost, reason: "a b|c" } as JobStep);
    await newStep(jobId, 2, NODE_B, steps.dispatched);
    await newStep(jobId, 2, NODE_B, steps.started);
    store.advance(5);
    // The old instance gives the job to a third node, and the next step here must name that one.
    await oldStep(jobId, {
      state: "DISPATCHED",
      at: (words) => {
        words[0] = "3";
        words[4] = NODE_A;
      },
      entry: `DISPATCHED|3|${NODE_A}|old|`,
    });
    await newStep(jobId, 3, NODE_A, steps.ack);
    await newStep(jobId, 3, NODE_A, steps.result);
    expect(await timelineOf(jobId)).toEqual([
      "CREATED 1  i1",
      "DISPATCHED 1 A old",
      "ACCEPTED 1 A new",
      "CREATED 2  new",
      "DISPATCHED 2 B new",
      "RUNNING 2 B new",
      "DISPATCHED 3 A old",
      "ACCEPTED 3 A new",
      "FINISHED 3 A new",
    ]);
    expect(await client.pttl(keys.timeline)).toBe(-1);
    await newStep(jobId, 3, NODE_A, steps.released);
    for (const key of [keys.fsm, keys.timeline])
      expect(await client.pttl(key)).toBeGreaterThan(RETENTION_MS / 2);
  });

  test("the fields that release 0.1.0 reads are those it writes", async () => {
    const job = newJob({ sessionId: "s1" });
    const { jobId } = job;
    await createJob(store.hot, job);
    await newStep(jobId, 1, NODE_A, steps.dispatched);
    const { fsm } = keysOfJob(store.hot.prefix, jobId);
    const fields = await client.hgetall(fsm);
    expect(Object.keys(fields).sort()).toEqual([
      "at",
      "created_ms",
      "session_id",
      "spec",
      "state",
      "timeline",
    ]);
    expect(fields.at).toMatch(new RegExp(`^1 0 3 1 ${NODE_A} \\d{13} \\d{13} -$`));
    const { tenant, pool, requestId, priority, originInstanceId } = job;
    const shown = { tenant, pool, requestId, priority, originInstanceId };
    const limits = { pendingTimeoutMs: 10_000, ackTimeoutMs: 5_000, runTimeoutMs: 30_000 };
    expect(JSON.parse(fields.spec!)).toEqual({
      ...shown,
      ...limits,
      bodyHash: "hash",
      turn: false,
    });
    // Of a released record an instance reads what it shows, and no limit.
    await newStep(jobId, 1, NODE_A, steps.result);
    await newStep(jobId, 1, NODE_A, steps.released);
    expect(JSON.parse((await client.hget(fsm, "spec"))!)).toEqual(shown);
    expect(await timelineOf(jobId)).toEqual([
      "CREATED 1  i1",
      "DISPATCHED 1 A new",
      "FINISHED 1 A new",
      "RELEASED 1 A",
    ]);
  });

  test.each([
    ["", 0],
    [" that begins before the job, by a store's clock that is behind,", 60_000],
  ])("a long timeline%s keeps its newest entries with their node and instance", async (_, behindMs) => {
    const job = newJob({ attemptsMax: 1_000 });
    const { jobId } = job;
    await createJob(store.hot, job);
    const { fsm } = keysOfJob(store.hot.prefix, jobId);
    await client.hincrby(fsm, "created_ms", behindMs);
    for (let attempt = 1; attempt <= 25; attempt++) {
      const about = { jobId, attemptId: attempt, nodeId: attempt % 2 ? NODE_A : NODE_B };
      const instanceId = attempt % 5 ? "i1" : "i2";
      await advance(store.hot, { ...about, instanceId, steps: [steps.dispatched, steps.ack] });
      await advance(store.hot, { ...about, instanceId: "i3", steps: [lost] });
    }
    const { timeline } = (await readJob(store.hot, jobId, { timeline: true }))!;
    expect(timeline).toHaveLength(TIMELINE_MAX);
    expect(timeline.at(-1)).toMatchObject({ state: "CREATED", attempt_id: 26, instance_id: "i3" });
    for (const { state, attempt_id, node_id, instance_id } of timeline) {
      if (state === "CREATED") continue;
      expect(node_id).toBe(attempt_id % 2 ? NODE_A : NODE_B);
      expect(instance_id).toBe(attempt_id % 5 ? "i1" : "i2");
    }
    const text = (await client.hget(fsm, "timeline"))!;
    expect(text.split("\n").filter((line) => /^-?\d/.test(line)).length).toBe(TIMELINE_MAX);
  });
});
