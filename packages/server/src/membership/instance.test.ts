import { startRedis } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { openServer, type TestDb } from "../../testing/databases.ts";
import { openTestHot } from "../../testing/hot-stores.ts";
import { createManualClock, type ManualClock } from "../../testing/manual-clock.ts";
import { createLog, silentLog } from "../kernel/log.ts";
import { systemRandom, uuid7 } from "../kernel/random.ts";
import type { Service } from "../kernel/service.ts";
import type { HotStore } from "../store/hot-store.ts";
import { openRedis, waitUntilReady } from "../store/redis.ts";
import { sql } from "../store/sql.ts";
import {
  INSTANCE_RENEW_MS,
  INSTANCE_TTL_MS,
  type InstanceOptions,
  joinInstances,
} from "./instance.ts";
import { forgetDeadInstances, liveInstances } from "./store/instance-store.ts";
import { presenceKeys } from "./store/presence-store.ts";

let server: TestDb & { uri: string };
beforeAll(async () => {
  server = await openServer();
});
afterAll(() => server.close());

describe("an instance in the list", () => {
  test("is there from its start until its stop", async () => {
    const { stop } = await join("alone", { url: "http://127.0.0.1:7171", version: "1.2.3" });
    expect(await live("alone")).toMatchObject([{ url: "http://127.0.0.1:7171", version: "1.2.3" }]);
    await stop();
    expect(await live("alone")).toEqual([]);
  });

  test("renews itself before it runs out", async () => {
    const { clock, renewals } = await join("steady");
    for (let minute = 0; minute < 12; minute++) {
      await server.advance(INSTANCE_RENEW_MS);
      clock.advance(INSTANCE_RENEW_MS);
      await until(() => renewals.length > minute, { what: "the renewal" });
    }
    expect(await live("steady")).toHaveLength(1);
    expect(renewals.every((result) => result === "ok")).toBe(true);
  });

  test("is gone when it has not renewed for a TTL, and back when it does", async () => {
    const { clock, renewals } = await join("stalled");
    await server.advance(INSTANCE_TTL_MS + 1);
    expect(await live("stalled")).toEqual([]);
    clock.advance(INSTANCE_RENEW_MS);
    await until(() => renewals.length > 0, { what: "the renewal" });
    expect(await live("stalled")).toHaveLength(1);
  });

  test("comes back also when its row was swept meanwhile", async () => {
    const { clock, renewals } = await join("swept");
    await server.db.query(sql`delete from instance where instance_id = 'swept'`);
    clock.advance(INSTANCE_RENEW_MS);
    await until(() => renewals.length > 0, { what: "the renewal" });
    expect(await live("swept")).toHaveLength(1);
  });

  test("is forgotten a day after it ran out", async () => {
    await join("long-dead");
    await server.advance(INSTANCE_TTL_MS + 24 * 3_600_000 + 1);
    await forgetDeadInstances(server.db);
    const { rows } = await server.db.query(
      sql`select from instance where instance_id = 'long-dead'`,
    );
    expect(rows).toEqual([]);
  });
});

describe("two processes with one instance_id", () => {
  test("the second waits, and is refused when the first still lives", async () => {
    await join("twin");
    const clock = createManualClock();
    const events: string[] = [];
    const second = join("twin", { clock, log: eventLog(events) });
    const refusal = expect(second).rejects.toThrow(
      "another live server uses instance_id twin; give each its own",
    );
    // The first renews all the time: on the database's clock nothing passes.
    for (let second = 1; second <= (INSTANCE_TTL_MS + INSTANCE_RENEW_MS) / 1_000 + 1; second++) {
      await until(() => events.length >= second, { what: "the next try" });
      clock.advance(1_000);
    }
    await refusal;
    expect(events.every((event) => event === "instance.awaited")).toBe(true);
  });

  test("the second takes over as soon as the first has run out", async () => {
    const first = await join("heir");
    const clock = createManualClock();
    const events: string[] = [];
    const second = join("heir", { clock, log: eventLog(events) });
    await until(() => events.length > 0, { what: "the first try" });
    await server.advance(INSTANCE_TTL_MS + 1);
    clock.advance(1_000);
    const { bootId } = await second;
    expect(await live("heir")).toMatchObject([{ boot_id: bootId }]);

    // The first was not dead after all. It finds out at its next renewal, and must end.
    expect(first.replaced()).toBe(false);
    first.clock.advance(INSTANCE_RENEW_MS);
    await until(first.replaced, { what: "the first to learn of it" });
    // Its own stop then removes nothing of the second.
    await first.stop();
    expect(await live("heir")).toMatchObject([{ boot_id: bootId }]);
  });
});

describe("with Redis", () => {
  test("the instance is present there too, until its stop", async () => {
    const { hot } = await openTestHot("redis");
    onTestFinished(() => hot.close());
    const { bootId, stop } = await join("present", { hot: { store: hot, presenceTtlMs: 60_000 } });
    expect(await presenceOf(hot, "present")).toBe(bootId);
    await stop();
    expect(await presenceOf(hot, "present")).toBeNull();
  });

  test("it is renewed there every third of its TTL", async () => {
    const { hot } = await openTestHot("redis");
    onTestFinished(() => hot.close());
    const { clock, renewals } = await join("short", { hot: { store: hot, presenceTtlMs: 900 } });
    clock.advance(300);
    await until(() => renewals.length === 1, { what: "the renewal after a third of the TTL" });
  });

  test("that is down, the row in Postgres is renewed all the same", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    const hot = openRedis({ mode: "single", urls: [redis.url], prefix: "down" });
    onTestFinished(() => hot.close());
    await waitUntilReady(hot, 10_000);
    const { clock, renewals } = await join("one-legged", {
      hot: { store: hot, presenceTtlMs: 60_000 },
    });
    await redis.kill();
    await server.advance(INSTANCE_TTL_MS - 1);
    clock.advance(INSTANCE_RENEW_MS);
    await until(() => renewals.length > 0, { what: "the renewal" });
    await server.advance(2);
    expect(renewals).toEqual(["error"]);
    expect(await live("one-legged")).toHaveLength(1);
  });
});

interface Joined {
  bootId: string;
  clock: ManualClock;
  renewals: string[];
  replaced: () => boolean;
  stop: Service["stop"];
}

async function join(
  instanceId: string,
  given: Partial<Omit<InstanceOptions, "clock">> & { clock?: ManualClock } = {},
): Promise<Joined> {
  const clock = given.clock ?? createManualClock();
  const bootId = uuid7(systemRandom, Date.now());
  const renewals: string[] = [];
  let replaced = false;
  const { stop } = await joinInstances({
    instanceId,
    bootId,
    url: "http://127.0.0.1:7070",
    version: "0.0.0",
    db: server.db,
    log: silentLog,
    ...given,
    clock,
    onReplaced: () => {
      replaced = true;
    },
    onRenewal: (result) => renewals.push(result),
  });
  onTestFinished(stop);
  // The first renewal follows the start at once; the tests count from there.
  await until(() => renewals.length > 0, { what: "the first renewal" });
  renewals.length = 0;
  return { bootId, clock, renewals, replaced: () => replaced, stop };
}

async function live(instanceId: string) {
  return (await liveInstances(server.db)).filter((row) => row.instance_id === instanceId);
}

async function presenceOf(hot: HotStore, instanceId: string): Promise<string | null> {
  if (!("client" in hot)) throw new Error("a Redis is needed");
  const { client } = hot as ReturnType<typeof openRedis>;
  return client.get(presenceKeys.presence(hot.prefix, instanceId));
}

function eventLog(events: string[]) {
  return createLog("info", {
    write: (line: string) => void events.push((JSON.parse(line) as { event: string }).event),
  });
}
