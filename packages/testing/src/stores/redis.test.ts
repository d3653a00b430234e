import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isFrozen } from "../processes/proc.ts";
import { type RedisServer, startRedis, uniqueKeyPrefix } from "./redis.ts";
import { askRedis } from "./redis-ask.ts";

describe("a private Redis", () => {
  let redis: RedisServer;
  const ask = (command: string, timeoutMs?: number) => askRedis(redis.port, command, timeoutMs);
  beforeAll(async () => {
    redis = await startRedis({ conf: { maxmemory: "64mb" } });
  });
  afterAll(() => redis.discard());

  test("Redis never evicts, logs every write, and takes configuration", async () => {
    expect(await ask("CONFIG GET maxmemory-policy")).toContain("noeviction");
    expect(await ask("CONFIG GET appendonly")).toContain("yes");
    expect(await ask("CONFIG GET maxmemory")).toContain(`${64 * 1024 * 1024}`);
  });

  test("Redis keeps its data and port over a stop and a kill", async () => {
    await ask("SET first 1");
    await redis.stop();
    await expect(ask("PING")).rejects.toThrow("ECONNREFUSED");
    await redis.start();
    await ask("SET second 2");
    await redis.kill();
    await redis.start();
    expect(await ask("EXISTS first second")).toBe(":2");
  });

  test("Redis can restart empty", async () => {
    await ask("SET lost 1");
    await redis.restartEmpty();
    expect(await ask("DBSIZE")).toBe(":0");
  });

  test("falls silent while frozen, and answers when thawed", async () => {
    await redis.freeze();
    expect(isFrozen(redis.pid)).toBe(true);
    await expect(ask("PING", 500)).rejects.toThrow("no answer to PING");
    await redis.thaw();
    expect(await ask("PING")).toBe("+PONG");
  });

  test("a bad configuration fails with Redis's own message", async () => {
    const start = startRedis({ conf: { maxmemroy: "1mb" } });
    await expect(start).rejects.toThrow(/ended while starting.*maxmemroy/);
  });
});

test("every test file can have a key prefix of its own", () => {
  expect(uniqueKeyPrefix()).toMatch(/^t[0-9a-f]{12}$/);
  expect(uniqueKeyPrefix()).not.toBe(uniqueKeyPrefix());
});
