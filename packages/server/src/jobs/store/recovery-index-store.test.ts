import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../../testing/hot-stores.ts";
import { newJobId } from "../../../testing/jobs.ts";
import { RECOVERY_SHARDS, recoveryShard } from "./keys.ts";
import {
  enterRecoveryIndex,
  leaveRecoveryIndex,
  RETAKE_AFTER_MS,
  rescheduleRecovery,
  takeOverdue,
} from "./recovery-index-store.ts";

describe("the shard of a job", () => {
  test("jobs of one moment share one, and over time every shard has its turn", () => {
    const start = Date.parse("2026-01-01T00:00:00Z");
    expect(recoveryShard(newJobId(start))).toBe(recoveryShard(newJobId(start + 31)));
    const used = new Set<number>();
    for (let ms = 0; ms < 32 * RECOVERY_SHARDS; ms += 32)
      used.add(recoveryShard(newJobId(start + ms)));
    expect(used).toEqual(new Set(Array.from({ length: RECOVERY_SHARDS }, (_, shard) => shard)));
  });
});

describe.each(HOT_STORES)("the due index: %s", (kind) => {
  let store: TestHot;
  let nextMs = Date.now();
  /** A shard that no other test of this file uses. */
  let shard: number;
  const ids = (count: number) => Array.from({ length: count }, () => newJobId(nextMs));
  const take = (countMax = 100) => takeOverdue(store.hot, shard, { countMax });

  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());
  beforeEach(() => {
    nextMs += 32;
    shard = recoveryShard(newJobId(nextMs));
  });

  test("nothing is due before its time, and the next look is known", async () => {
    expect(await take()).toEqual({ jobIds: [], nextInMs: undefined });
    const [soon, later] = ids(2);
    await enterRecoveryIndex(store.hot, [
      { jobId: later!, inMs: 900 },
      { jobId: soon!, inMs: 500 },
    ]);
    expect(await take()).toEqual({ jobIds: [], nextInMs: 500 });
    store.advance(500);
    expect(await take()).toEqual({ jobIds: [soon], nextInMs: 400 });
    await leaveRecoveryIndex(store.hot, [soon!, later!]);
    expect(await take()).toEqual({ jobIds: [], nextInMs: undefined });
  });

  test("I11: what is taken comes back by itself, unless it is moved or leaves", async () => {
    const [left, moved, dropped] = ids(3);
    await enterRecoveryIndex(
      store.hot,
      [left, moved, dropped].map((jobId) => ({ jobId: jobId!, inMs: 0 })),
    );
    expect((await take()).jobIds.sort()).toEqual([left, moved, dropped].sort());
    expect((await take()).jobIds).toEqual([]);
    expect(await leaveRecoveryIndex(store.hot, [left!])).toBe(1);
    await rescheduleRecovery(store.hot, [{ jobId: moved!, inMs: 60_000 }]);
    store.advance(RETAKE_AFTER_MS);
    expect((await take()).jobIds).toEqual([dropped]);
    await leaveRecoveryIndex(store.hot, [moved!, dropped!]);
  });

  test("a look ahead does not bring back a job that has left", async () => {
    const [jobId] = ids(1);
    await enterRecoveryIndex(store.hot, [{ jobId: jobId!, inMs: 0 }]);
    await leaveRecoveryIndex(store.hot, [jobId!]);
    await rescheduleRecovery(store.hot, [{ jobId: jobId!, inMs: 0 }]);
    expect(await take()).toEqual({ jobIds: [], nextInMs: undefined });
    expect(await leaveRecoveryIndex(store.hot, [jobId!])).toBe(0);
  });

  test("the longest due come first, and one look takes no more than it can do", async () => {
    const jobs = ids(10);
    await enterRecoveryIndex(
      store.hot,
      jobs.map((jobId, index) => ({ jobId, inMs: index })),
    );
    store.advance(10);
    expect((await take(4)).jobIds).toEqual(jobs.slice(0, 4));
    const rest = await take(100);
    expect(rest.jobIds).toEqual(jobs.slice(4));
    await leaveRecoveryIndex(store.hot, jobs);
  });

  test("thousands at once, over many shards", async () => {
    const jobs = Array.from({ length: 5_000 }, (_, n) => newJobId(nextMs + (n % 320)));
    await enterRecoveryIndex(
      store.hot,
      jobs.map((jobId) => ({ jobId, inMs: 0 })),
    );
    const taken: string[] = [];
    for (let each = 0; each < RECOVERY_SHARDS; each++) {
      const { jobIds } = await takeOverdue(store.hot, each, { countMax: 2_000 });
      taken.push(...jobIds);
    }
    expect(taken.sort()).toEqual(jobs.sort());
    expect(await leaveRecoveryIndex(store.hot, jobs)).toBe(5_000);
    nextMs += 320;
  });

  test("64 instances look at once: each entry is one's", async () => {
    const jobs = ids(200);
    await enterRecoveryIndex(
      store.hot,
      jobs.map((jobId) => ({ jobId, inMs: 0 })),
    );
    const looks = await Promise.all(Array.from({ length: 64 }, () => take(10)));
    expect(looks.flatMap(({ jobIds }) => jobIds).sort()).toEqual(jobs.sort());
    await leaveRecoveryIndex(store.hot, jobs);
  });
});
