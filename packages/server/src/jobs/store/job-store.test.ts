import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { NODE_A, newJob } from "../../../testing/jobs.ts";
import type { RedisStore } from "../../store/redis.ts";
import { type BindingCandidate, bind, readBinding } from "./binding-store.ts";
import {
  createJob,
  dropJob,
  type NewJob,
  persistJob,
  readAttempts,
  readJob,
  UNBOUND_EXPIRY_MS,
  voidJob,
} from "./job-store.ts";
import { keysOfJob } from "./keys.ts";
import { advance } from "./transition-store.ts";

const RETENTION_MS = 3_600_000;

describe.each(HOT_STORES)("job records and bindings: %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  const suitor = ({ jobId, tenant, requestId, bodyHash }: NewJob): BindingCandidate => ({
    jobId,
    tenant,
    requestId,
    bodyHash,
    ttlMs: RETENTION_MS,
  });
  const everything = { payload: true, result: true, timeline: true };

  test("a record returns its spec, and its payload unchanged", async () => {
    const payload = JSON.stringify({ text: "x".repeat(1_000), odd: '"\\\u0000\ud800é' });
    const job = newJob({
      payload,
      service: "asr",
      priority: 9,
      traceId: "t-1",
      sessionId: "5".repeat(32),
      turn: true,
      finalize: "manual",
    });
    const { createdMs } = (await createJob(store.hot, job)) as { createdMs: number };
    expect(await readJob(store.hot, job.jobId, everything)).toEqual({
      ...job,
      turnId: undefined,
      state: "CREATED",
      attemptId: 1,
      countedAttempts: 0,
      nodeId: undefined,
      endedBy: undefined,
      outcome: undefined,
      createdMs,
      attemptMs: createdMs,
      stateMs: createdMs,
      persisted: false,
      listeners: [],
      affinity: undefined,
      lastFailure: undefined,
      isSuspect: false,
      avoid: [],
      result: undefined,
      timeline: [
        {
          at: new Date(createdMs).toISOString(),
          state: "CREATED",
          attempt_id: 1,
          instance_id: "i1",
        },
      ],
    });
    expect((await readJob(store.hot, job.jobId))?.payload).toBeUndefined();
  });

  test("a payload of 256 KiB goes through as it is", async () => {
    const job = newJob({ payload: JSON.stringify('\\"é'.repeat(40_000)) });
    await createJob(store.hot, job);
    expect((await readJob(store.hot, job.jobId, { payload: true }))?.payload).toBe(job.payload);
  });

  test("a record that is written again is a duplicate, and nothing changes", async () => {
    const job = newJob();
    await createJob(store.hot, job);
    const before = await readJob(store.hot, job.jobId, everything);
    store.advance(5);
    expect(await createJob(store.hot, { ...job, payload: '"other"' })).toEqual({
      outcome: "duplicate",
    });
    expect(await readJob(store.hot, job.jobId, everything)).toEqual(before);
  });

  test("a job that lost its request is dropped; one that was kept stays", async () => {
    const [loser, winner, dispatched] = [newJob(), newJob(), newJob()];
    for (const job of [loser, winner, dispatched]) await createJob(store.hot, job);
    expect(await persistJob(store.hot, winner.jobId)).toBe("persisted");
    await advance(store.hot, {
      jobId: dispatched.jobId,
      attemptId: 1,
      nodeId: NODE_A,
      instanceId: "i1",
      steps: [{ event: "dispatched" }],
    });
    expect(await dropJob(store.hot, loser.jobId)).toBe("dropped");
    expect(await dropJob(store.hot, loser.jobId)).toBe("absent");
    expect(await dropJob(store.hot, winner.jobId)).toBe("kept");
    expect(await dropJob(store.hot, dispatched.jobId)).toBe("kept");
    expect(await readAttempts(store.hot, [loser, winner, dispatched])).toEqual([
      undefined,
      { jobId: winner.jobId, state: "CREATED", attemptId: 1, nodeId: undefined, hasResult: false },
      {
        jobId: dispatched.jobId,
        state: "DISPATCHED",
        attemptId: 1,
        nodeId: NODE_A,
        hasResult: false,
      },
    ]);
  });

  test("a job is kept with the turn it joined", async () => {
    const job = newJob({ turn: true });
    expect(await persistJob(store.hot, job.jobId, { turnId: "t1" })).toBe("absent");
    await createJob(store.hot, job);
    await persistJob(store.hot, job.jobId, { turnId: "t1" });
    expect(await readJob(store.hot, job.jobId)).toMatchObject({ turnId: "t1", persisted: true });
  });

  if (kind !== "memory")
    test("a record expires until it is persisted, not while its job is open, and after its retention", async () => {
      const ttl = ttlsOf(store);
      const job = newJob();
      await createJob(store.hot, job);
      const keys = keysOfJob(store.hot.prefix, job.jobId);
      for (const key of [keys.fsm, keys.payload]) {
        expect(await ttl(key)).toBeGreaterThan(UNBOUND_EXPIRY_MS / 2);
        expect(await ttl(key)).toBeLessThanOrEqual(UNBOUND_EXPIRY_MS);
      }
      await persistJob(store.hot, job.jobId);
      expect([await ttl(keys.fsm), await ttl(keys.payload)]).toEqual([-1, -1]);
      const about = { jobId: job.jobId, attemptId: 1, nodeId: NODE_A, instanceId: "i1" };
      await advance(store.hot, {
        ...about,
        steps: [{ event: "dispatched" }, { event: "result", outcome: "succeeded" }],
        result: '{"body":1}',
      });
      expect([await ttl(keys.fsm), await ttl(keys.result)]).toEqual([-1, -1]);
      expect([await ttl(keys.payload), await ttl(keys.timeline)]).toEqual([-2, -2]);
      await advance(store.hot, { ...about, steps: [{ event: "released", keepMs: RETENTION_MS }] });
      for (const key of [keys.fsm, keys.result]) {
        expect(await ttl(key)).toBeGreaterThan(RETENTION_MS / 2);
        expect(await ttl(key)).toBeLessThanOrEqual(RETENTION_MS);
      }
      // A late call: the record gets its turn, and expires all the same.
      expect(await persistJob(store.hot, job.jobId, { turnId: "t1" })).toBe("persisted");
      expect(await readJob(store.hot, job.jobId)).toMatchObject({ turnId: "t1" });
      expect(await ttl(keys.fsm)).toBeGreaterThan(RETENTION_MS / 2);
    });

  test("a job expires unless it is persisted; any first step persists it", async () => {
    const [forgotten, kept, advanced] = [newJob(), newJob(), newJob()];
    for (const job of [forgotten, kept, advanced]) await createJob(store.hot, job);
    await persistJob(store.hot, kept.jobId);
    const steps = [{ event: "reassign", reason: "x", counts: false, avoid: false }] as const;
    await advance(store.hot, { jobId: advanced.jobId, attemptId: 1, instanceId: "i1", steps });
    if (kind === "memory") store.advance(UNBOUND_EXPIRY_MS);
    for (const job of [kept, advanced]) {
      const record = await readJob(store.hot, job.jobId, everything);
      expect(record).toMatchObject({ persisted: true, payload: job.payload });
      if (kind === "memory") continue;
      const { fsm, payload } = keysOfJob(store.hot.prefix, job.jobId);
      const ttl = ttlsOf(store);
      expect([await ttl(fsm), await ttl(payload)]).toEqual([-1, -1]);
    }
    if (kind === "memory") expect(await readJob(store.hot, forgotten.jobId)).toBeUndefined();
  });

  if (kind === "memory")
    test("a released job is gone after its retention", async () => {
      const job = newJob();
      await createJob(store.hot, job);
      const steps = [
        { event: "give_up", outcome: "cancelled" },
        { event: "released", keepMs: RETENTION_MS },
      ] as const;
      await advance(store.hot, { jobId: job.jobId, attemptId: 1, instanceId: "i1", steps });
      store.advance(RETENTION_MS - 1);
      expect(await readJob(store.hot, job.jobId)).toMatchObject({ state: "RELEASED" });
      store.advance(1);
      expect(await readJob(store.hot, job.jobId)).toBeUndefined();
    });

  test("I4: one request, one job; the winner asking again is the winner, the others follow", async () => {
    const [first, second] = [newJob({ requestId: "q" }), newJob({ requestId: "q" })];
    expect(await bind(store.hot, suitor(first))).toEqual({ outcome: "bound" });
    expect(await bind(store.hot, suitor(second))).toEqual({ outcome: "taken", jobId: first.jobId });
    expect(await bind(store.hot, suitor(first))).toEqual({ outcome: "bound" });
    expect(await readBinding(store.hot, first)).toEqual({ jobId: first.jobId, bodyHash: "hash" });
  });

  test("the same request id with another body is refused; another tenant has a job of its own", async () => {
    const first = newJob({ requestId: "body" });
    await bind(store.hot, suitor(first));
    expect(await bind(store.hot, suitor(newJob({ requestId: "body", bodyHash: "other" })))).toEqual(
      {
        outcome: "reused",
        jobId: first.jobId,
      },
    );
    const foreign = newJob({ requestId: "body", bodyHash: "other", tenant: "t2" });
    expect(await bind(store.hot, suitor(foreign))).toEqual({ outcome: "bound" });
    // The tenant and the id are apart also when a colon could be of either.
    const colon = newJob({ requestId: "y", tenant: "t:x" });
    expect(await bind(store.hot, suitor(colon))).toEqual({ outcome: "bound" });
    expect(await readBinding(store.hot, { tenant: "t", requestId: "x:y" })).toBeUndefined();
  });

  test("a binding whose job has no record is replaced, and that job can never be written", async () => {
    const [lostOne, next, third] = ["v", "v", "v"].map((requestId) => newJob({ requestId }));
    await bind(store.hot, suitor(lostOne!));
    expect(await bind(store.hot, suitor(next!))).toMatchObject({ outcome: "taken" });
    expect(await voidJob(store.hot, lostOne!.jobId)).toBe("void");
    expect(await voidJob(store.hot, lostOne!.jobId)).toBe("void");
    expect(await bind(store.hot, suitor(next!), lostOne!.jobId)).toEqual({ outcome: "bound" });
    // Compare-and-set: an instance that found the same gap a moment later follows.
    expect(await bind(store.hot, suitor(third!), lostOne!.jobId)).toEqual({
      outcome: "taken",
      jobId: next!.jobId,
    });
    // The record that was under way arrives at last.
    expect(await createJob(store.hot, lostOne!)).toEqual({ outcome: "void" });
    expect(await persistJob(store.hot, lostOne!.jobId)).toBe("absent");
    expect(await readJob(store.hot, lostOne!.jobId)).toBeUndefined();
    expect(await dropJob(store.hot, lostOne!.jobId)).toBe("absent");
    if (kind === "memory") return;
    // The mark against it runs out by itself.
    const { fsm } = keysOfJob(store.hot.prefix, lostOne!.jobId);
    expect(await ttlsOf(store)(fsm)).toBeGreaterThan(0);
  });

  test("a binding whose job has a record after all is not replaced", async () => {
    const job = newJob({ requestId: "w" });
    await createJob(store.hot, job);
    expect(await voidJob(store.hot, job.jobId)).toBe("exists");
    expect(await persistJob(store.hot, job.jobId)).toBe("persisted");
  });
});

/** Redis' own word: -1 lives on, -2 is absent. */
function ttlsOf({ hot }: TestHot): (key: string) => Promise<number> {
  return (key) => (hot as RedisStore).client.pttl(key);
}
