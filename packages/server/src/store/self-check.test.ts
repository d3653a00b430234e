import { startRedis } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { Redis } from "ioredis";
import { describe, expect, onTestFinished, test } from "vitest";
import { HOT_STORES, redisSettings } from "../../testing/hot-stores.ts";
import { openPostgres } from "./postgres.ts";
import { openRedis, waitUntilReady } from "./redis.ts";
import { checkPostgres, checkRedis, judgeRedis } from "./self-check.ts";

describe("Postgres", () => {
  test("as it comes is fit", async () => {
    expect(await check(stores().postgresAdminUri)).toEqual({ refusals: [], warnings: [] });
  });

  test("that acknowledges commits it may lose is refused, also when only our session does", async () => {
    const uri = `${stores().postgresAdminUri}?options=-c%20synchronous_commit%3Doff`;
    expect((await check(uri)).refusals).toEqual([
      expect.stringContaining("synchronous_commit = off"),
    ]);
  });

  async function check(uri: string) {
    const db = openPostgres({ uri, poolMax: 1 });
    onTestFinished(() => db.close());
    return checkPostgres(db);
  }
});

const FIT =
  "redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n";

describe("Redis, by what it says of itself", () => {
  test("is fit with noeviction, AOF and no replicas", () => {
    expect(judgeRedis(FIT)).toEqual({ refusals: [], warnings: [] });
  });

  test.each([
    ["7.0.15", []],
    ["6.2.0", []],
    ["8.0", []],
    ["6.0.16", [expect.stringContaining("6.0.16 is too old")]],
    ["5.0.7", [expect.stringContaining("5.0.7 is too old")]],
  ])("version %s", (version, refusals) => {
    expect(judgeRedis(FIT.replace("7.0.15", version)).refusals).toEqual(refusals);
  });

  test.each(["allkeys-lru", "volatile-ttl"])("with %s is refused: it drops jobs", (policy) => {
    expect(judgeRedis(FIT.replace("noeviction", policy)).refusals).toEqual([
      expect.stringContaining(`maxmemory-policy ${policy}`),
    ]);
  });

  test("without AOF, or with replicas, is used and warned about", () => {
    expect(judgeRedis(FIT.replace("aof_enabled:1", "aof_enabled:0"))).toEqual({
      refusals: [],
      warnings: [expect.stringContaining("without AOF")],
    });
    expect(judgeRedis(FIT.replace("slaves:0", "slaves:2"))).toEqual({
      refusals: [],
      warnings: [expect.stringContaining("replicas")],
    });
  });

  test("several things at once are all said", () => {
    const bad = "redis_version:5.0.7\r\nmaxmemory_policy:allkeys-lfu\r\naof_enabled:0\r\n";
    const { refusals, warnings } = judgeRedis(bad);
    expect([refusals.length, warnings.length]).toEqual([2, 1]);
  });
});

describe("Redis, asked", () => {
  test.each(
    HOT_STORES.filter((kind) => kind !== "memory"),
  )("%s of the tests is fit", async (kind) => {
    const store = openRedis({ ...redisSettings(kind), prefix: "check" });
    onTestFinished(() => store.close());
    await waitUntilReady(store, 10_000);
    expect(await checkRedis(store.client)).toEqual({ refusals: [], warnings: [] });
  });

  test("one that evicts and keeps nothing is refused, with a warning", async () => {
    const redis = await startRedis({
      conf: { "maxmemory-policy": "volatile-lru", appendonly: "no" },
    });
    onTestFinished(() => redis.discard());
    const client = new Redis(redis.url);
    onTestFinished(() => client.disconnect());
    expect(await checkRedis(client)).toEqual({
      refusals: [expect.stringContaining("maxmemory-policy volatile-lru")],
      warnings: [expect.stringContaining("without AOF")],
    });
  });
});
