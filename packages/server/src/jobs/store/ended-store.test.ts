import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { NODE_A, newJob, newJobId } from "../../../testing/jobs.ts";
import type { RedisStore } from "../../store/redis.ts";
import {
  dropBody,
  dropOldestBodies,
  type EndedJob,
  endDue,
  leadSweep,
  sweepEnded,
  UNIT_BYTES,
} from "./ended-store.ts";
import { createJob, readJob } from "./job-store.ts";
import { jobKeys, keysOfJob, RECOVERY_SHARDS, recoveryShard } from "./keys.ts";
import { enterRecoveryIndex, leaveRecoveryIndex } from "./recovery-index-store.ts";
import { advance } from "./transition-store.ts";

const RETENTION_MS = 3_600_000;

describe.each(HOT_STORES)("ended jobs: %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  /** Every test has a shard of its own. */
  let tests = 0;
  const nextShard = () => (tests += 1);
  const jobsOf = (shard: number, sizes: number[]): EndedJob[] =>
    sizes.map((bytes, at) => ({
      jobId: newJobId(((1 << 30) | (shard << 5)) >>> 0),
      tenant: at === 0 ? "blue" : "red",
      bytes,
    }));

  async function end(bytes: string): Promise<string> {
    const job = newJob();
    await createJob(store.hot, job);
    await advance(store.hot, {
      ...{ jobId: job.jobId, attemptId: 1, nodeId: NODE_A, instanceId: "i1" },
      steps: [
        { event: "dispatched" },
        { event: "result", outcome: "succeeded" },
        { event: "released", keepMs: RETENTION_MS },
      ],
      result: `{"body":"${bytes}"}`,
    });
    return job.jobId;
  }

  test("each counts once, until its record runs out", async () => {
    const shard = nextShard();
    const jobs = jobsOf(shard, [1, UNIT_BYTES, UNIT_BYTES + 1]);
    expect(new Set(jobs.map(({ jobId }) => recoveryShard(jobId)))).toEqual(new Set([shard]));
    const keep = { keepMs: RETENTION_MS };
    await endDue(store.hot, shard, jobs, { ...keep, leaves: false });
    await endDue(store.hot, shard, jobs, { ...keep, leaves: true });
    const counted = await sweepEnded(store.hot, shard);
    expect(counted).toMatchObject({ jobs: 3, units: 4 });
    expect([...counted.tenants].sort()).toEqual([
      ["blue", 1],
      ["red", 2],
    ]);
    store.advance(RETENTION_MS - 2_000);
    const last = await sweepEnded(store.hot, shard);
    expect(last).toMatchObject({ jobs: 3, units: 4 });
    expect(last.firstInMs).toBeLessThanOrEqual(RETENTION_MS / 64 + 4_000);
    store.advance(last.firstInMs!);
    expect(await sweepEnded(store.hot, shard)).toMatchObject({
      ...{ jobs: 0, units: 0, firstInMs: undefined },
    });
    store.advance(RETENTION_MS / 16);
    expect((await sweepEnded(store.hot, shard)).tenants.size).toBe(0);
  });

  test("a job that is done leaves the recovery index in the same step", async () => {
    const shard = nextShard();
    const [job] = jobsOf(shard, [100]);
    await enterRecoveryIndex(store.hot, [{ jobId: job!.jobId, inMs: 60_000 }]);
    await endDue(store.hot, shard, [job!], { keepMs: RETENTION_MS, leaves: true });
    expect(await leaveRecoveryIndex(store.hot, [job!.jobId])).toBe(0);
    // One whose body is gone leaves, and is not counted again.
    const [gone] = jobsOf(shard, [0]);
    await enterRecoveryIndex(store.hot, [{ jobId: gone!.jobId, inMs: 60_000 }]);
    await endDue(store.hot, shard, [gone!], { keepMs: RETENTION_MS, leaves: true });
    expect(await leaveRecoveryIndex(store.hot, [gone!.jobId])).toBe(0);
    expect(await sweepEnded(store.hot, shard)).toMatchObject({ jobs: 1, units: 2 });
  });

  test("the oldest bodies go first; the jobs stay counted", async () => {
    const shard = nextShard();
    const sizes = [10, 10, 10].map((units) => units * UNIT_BYTES);
    for (const job of jobsOf(shard, sizes)) {
      await endDue(store.hot, shard, [job], { keepMs: RETENTION_MS, leaves: true });
      store.advance(2_000);
    }
    expect(await dropOldestBodies(store.hot, shard, 11)).toBe(2);
    expect(await sweepEnded(store.hot, shard)).toMatchObject({ jobs: 3, units: 10 });
    expect(await dropOldestBodies(store.hot, shard, 100)).toBe(1);
    expect(await sweepEnded(store.hot, shard)).toMatchObject({ jobs: 3, units: 0 });
    expect(await dropOldestBodies(store.hot, shard, 100)).toBe(0);
  });

  test("a record outlives its body, with its outcome and its expiry; a small result stays with it", async () => {
    const [large, small, open] = [await end("x".repeat(1_000)), await end("y"), newJob()];
    await createJob(store.hot, open);
    for (const jobId of [large, small, open.jobId]) await dropBody(store.hot, jobId);
    const everything = { payload: true, result: true, timeline: true };
    const record = await readJob(store.hot, large, everything);
    expect(record).toMatchObject({ outcome: "succeeded", nodeId: NODE_A });
    // In Redis the binding has it, and the record of an ended job is short.
    if (kind === "memory") expect(record).toMatchObject({ bodyHash: "hash" });
    expect(record!.result).toBeUndefined();
    expect(record!.timeline.map(({ state }) => state)).toEqual(["CREATED", "RELEASED"]);
    expect(await readJob(store.hot, small, everything)).toMatchObject({ result: '{"body":"y"}' });
    expect(await readJob(store.hot, open.jobId, everything)).toMatchObject({
      state: "CREATED",
      payload: open.payload,
    });
    await dropBody(store.hot, newJobId()); // ran out meanwhile
    if (kind === "memory") return;
    const { client, prefix } = store.hot as RedisStore;
    const keys = keysOfJob(prefix, large);
    expect(await client.pttl(keys.fsm)).toBeGreaterThan(RETENTION_MS / 2);
    expect(await client.exists(keys.result)).toBe(0);
    expect(await client.exists(keys.timeline)).toBe(0);
  });

  test("one instance sweeps until its lease expires, and the others read its figures", async () => {
    const tenants = new Map([
      ["blue", 10],
      ["red", 2],
    ]);
    const ask = (instanceId: string, jobs?: number) =>
      leadSweep(store.hot, {
        ...{ instanceId, leaseMs: 5_000 },
        counted:
          jobs === undefined ? undefined : { jobs, units: 2 ** 33, firstInMs: 7_000, tenants },
      });
    expect(await ask("a")).toMatchObject({ leads: true, figures: { jobs: 0 } });
    expect(await ask("a", 12)).toMatchObject({ leads: true });
    expect(await ask("b", 99)).toEqual({
      leads: false,
      figures: { jobs: 12, units: 2 ** 33, firstInMs: 7_000, tenants },
    });
    store.advance(5_000);
    expect(await ask("b")).toMatchObject({ leads: true, figures: { jobs: 12 } });
    expect(await ask("a")).toMatchObject({ leads: false });
  });

  if (kind !== "memory")
    test("all keys of ended jobs expire", async () => {
      const { client, prefix } = store.hot as RedisStore;
      const shards = Array.from({ length: RECOVERY_SHARDS }, (_, shard) => shard);
      const keys = shards.flatMap((shard) => [
        jobKeys.ended(prefix, shard),
        jobKeys.bodies(prefix, shard),
      ]);
      const ttls = await Promise.all(
        [...keys, jobKeys.endedSweep(prefix)].map((key) => client.pttl(key)),
      );
      expect(ttls.filter((ttl) => ttl === -1)).toEqual([]);
      expect(ttls.some((ttl) => ttl > 0)).toBe(true);
    });
});
