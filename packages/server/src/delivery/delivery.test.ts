import { randomUUID } from "node:crypto";
import { startProxy } from "@tenure/testing/processes/proxy";
import { startRedis, uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import { Registry } from "prom-client";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { armFailpoint, disarmAll } from "../../testing/failpoints.js";
import { redisSettings } from "../../testing/hot-stores.ts";
import { createManualClock, type ManualClock } from "../../testing/manual-clock.ts";
import { systemClock } from "../kernel/clock.ts";
import { silentLog } from "../kernel/log.ts";
import { announcePresence } from "../membership/store/presence-store.ts";
import type { HotStore } from "../store/hot-store.ts";
import { openMemory } from "../store/memory.ts";
import { openRedis, type RedisStore, waitUntilReady } from "../store/redis.ts";
import { deliveryMetrics, metricsIn } from "../telemetry.ts";
import type { DeadLetter, Delivery, DeliveryOptions, DeliverySettings } from "./contract.ts";
import { createDelivery } from "./delivery.ts";
import { deliveryKeys } from "./delivery-keys.ts";
import type { Doorbell, NewDoorbell } from "./doorbell.ts";
import { closeInbox, listInboxes } from "./inbox-registry-store.ts";
import { takeUnread } from "./inbox-store.ts";

const SETTINGS: DeliverySettings = {
  stream_group: "scheduler",
  stream_block_ms: 20,
  stream_count: 64,
  stream_maxlen: 10_000,
  dlq_enabled: true,
  dlq_maxlen: 100,
  dlq_max_deliveries: 3,
  dlq_scan_interval_ms: 5,
  dlq_scan_count: 100,
};

let time: ManualClock;
let store: HotStore;
let running: Delivery[] = [];

async function open(kind: "redis" | "redis-cluster"): Promise<void> {
  time = createManualClock();
  const prefix = uniqueKeyPrefix();
  const redis = openRedis({ ...redisSettings(kind), prefix, nowMs: () => time.wallMs() });
  await waitUntilReady(redis, 10_000);
  store = redis;
}

afterEach(async () => {
  disarmAll();
  await Promise.all(running.map((delivery) => delivery.stop()));
  running = [];
  await store.close();
});

interface InstanceOptions extends Partial<Pick<DeliveryOptions, "receive" | "route">> {
  settings?: Partial<DeliverySettings>;
  over?: HotStore;
}

/** An instance that remembers what it received and counted. */
function instance(instanceId: string, options: InstanceOptions = {}) {
  const { settings, receive = async () => "done", route, over = store } = options;
  const received: Doorbell[] = [];
  const telemetry = deliveryMetrics(metricsIn(new Registry()));
  const scans = vi.spyOn(telemetry.inboxPending, "set");
  const delivery = createDelivery({
    store: over,
    instanceId,
    settings: { ...SETTINGS, ...settings },
    clock: { ...systemClock, wallMs: () => time.wallMs() },
    log: silentLog,
    telemetry,
    route: route ?? (async () => ({ to: instanceId })),
    receive(message) {
      received.push(message);
      return receive(message);
    },
  });
  running.push(delivery);
  return Object.assign(delivery, {
    received,
    pending: async () => (await delivery.backlog(instanceId)).messages,
    scans: () => scans.mock.calls.length,
    async counts(): Promise<Record<string, number>> {
      const [events, letters] = [await telemetry.deliveries.get(), await telemetry.dlqMoved.get()];
      return Object.fromEntries([
        ...events.values.map(({ labels, value }) => [labels.event, value]),
        ...letters.values.map(({ labels, value }) => [`buried.${labels.reason}`, value]),
      ]);
    },
  });
}

const bell = (words: Partial<NewDoorbell> = {}): NewDoorbell => ({
  kind: "job.finished",
  job_id: randomUUID(),
  attempt_id: 1,
  deadline_ms: time.wallMs() + 60_000,
  ...words,
});

const settled = (delivery: { pending(): Promise<number> }) =>
  until(async () => (await delivery.pending()) === 0, { what: "an empty inbox" });

const letters = (delivery: Delivery): Promise<DeadLetter[]> => delivery.dlq.list({ limit: 500 });

describe.each(["redis", "redis-cluster"] as const)("delivery on %s", (kind) => {
  beforeEach(() => open(kind));

  test("I7: a message sent before its instance reads is received when it does", async () => {
    const a = instance("a");
    const message = bell({ session_id: "s1", note: "unknown fields are kept" });
    expect(await a.send("a", message)).toMatchObject({ outcome: "sent" });
    expect(await a.pending()).toBe(1);
    a.start();
    await settled(a);
    expect(a.received).toEqual([{ v: 1, hops: 0, ...message }]);
    expect(await a.counts()).toEqual({ sent: 1, done: 1 });
  });

  test("I7: a message that was superseded is acknowledged and counted as such", async () => {
    const a = instance("a", { receive: async () => "superseded" });
    a.start();
    await a.send("a", bell());
    await settled(a);
    expect(await a.counts()).toEqual({ sent: 1, superseded: 1 });
  });

  test("I7: a message whose effect failed is retried until it succeeds", async () => {
    let failures = 2;
    const a = instance("a", {
      async receive() {
        if (failures-- > 0) throw new Error("the store is down");
        return "done";
      },
    });
    a.start();
    await a.send("a", bell());
    await settled(a);
    expect(a.received).toHaveLength(3);
    expect(await a.counts()).toEqual({ sent: 1, left: 2, done: 1 });
  });

  test("I7: after dlq_max_deliveries a message is a dead letter", async () => {
    const a = instance("a", { receive: async () => "retry" });
    a.start();
    const message = bell();
    await a.send("a", message);
    await settled(a);
    expect(a.received).toHaveLength(3);
    const [letter] = await letters(a);
    expect(letter).toMatchObject({ instanceId: "a", reason: "deliveries", deliveries: 3 });
    expect(letter!.message).toEqual({ v: 1, hops: 0, ...message });
    expect(JSON.parse(letter!.bytes.toString())).toEqual(letter!.message);
  });

  test("I7: past its deadline a message is a dead letter, and was not received", async () => {
    const a = instance("a");
    await a.send("a", bell({ deadline_ms: time.wallMs() + 1_000 }));
    time.advance(1_001);
    a.start();
    await settled(a);
    expect(a.received).toEqual([]);
    expect(await letters(a)).toMatchObject([
      { reason: "deadline", ageMs: 1_001, movedAtMs: time.wallMs() },
    ]);
  });

  test("I7: at stream_maxlen the sender is refused, and no accepted message is lost", async () => {
    const a = instance("a", { settings: { stream_maxlen: 10 } });
    const outcomes = await Promise.all(Array.from({ length: 32 }, () => a.send("a", bell())));
    expect(outcomes.filter(({ outcome }) => outcome === "sent")).toHaveLength(10);
    expect(outcomes.filter(({ outcome }) => outcome === "full")).toHaveLength(22);
    expect(await a.counts()).toEqual({ sent: 10, refused: 22 });
    a.start();
    await settled(a);
    expect(new Set(a.received.map(({ job_id }) => job_id)).size).toBe(10);
  });

  test("a dead letter is sent again with a new deadline and no hops", async () => {
    const a = instance("a");
    const message = bell({ deadline_ms: time.wallMs(), hops: 2 });
    await a.send("a", message);
    time.advance(5_000);
    a.start();
    await settled(a);
    const [letter] = await letters(a);
    expect(await a.dlq.redrive(letter!)).toEqual({ outcome: "redriven", instanceId: "a" });
    await settled(a);
    const deadline_ms = time.wallMs() + 60_000;
    expect(a.received).toEqual([{ ...letter!.message, hops: 0, deadline_ms }]);
    expect(await letters(a)).toEqual([]);
    expect(await a.dlq.redrive(letter!)).toEqual({ outcome: "absent" });
  });

  test("a dead letter stays when there is nowhere to send it", async () => {
    let destination: "wait" | "gone" = "wait";
    const a = instance("a", { route: async () => destination, settings: { stream_maxlen: 1 } });
    a.start();
    await a.send("a", bell({ deadline_ms: 0 }));
    await settled(a);
    await a.stop();
    const [letter] = await letters(a);
    expect(await a.dlq.redrive(letter!)).toEqual({ outcome: "nowhere", because: "wait" });
    destination = "gone";
    expect(await a.dlq.redrive(letter!)).toEqual({ outcome: "nowhere", because: "gone" });
    await a.send("a", bell());
    expect(await a.dlq.redrive(letter!, "a")).toEqual({ outcome: "full", instanceId: "a" });
    expect(await letters(a)).toEqual([letter]);
  });

  test("dead letters are listed page by page, oldest first, and discarded once", async () => {
    const a = instance("a");
    const jobs = Array.from({ length: 5 }, () => randomUUID());
    for (const job_id of jobs) await a.send("a", bell({ job_id, deadline_ms: 0 }));
    a.start();
    await settled(a);
    const first = await a.dlq.list({ limit: 3 });
    const rest = await a.dlq.list({ limit: 3, after: first.at(-1) });
    const found = [...first, ...rest].map(({ message }) => message!.job_id);
    expect(new Set(found)).toEqual(new Set(jobs));
    expect([first.length, rest.length]).toEqual([3, 2]);
    expect(await a.dlq.discard(first[0]!)).toBe(true);
    expect(await a.dlq.discard(first[0]!)).toBe(false);
    expect(await letters(a)).toEqual([...first, ...rest].slice(1));
    expect(await a.backlog("a")).toEqual({ messages: 0, letters: 4 });
    expect(await a.dlq.list({ limit: 3, instanceId: "another" })).toEqual([]);
  });

  test("at dlq_maxlen the oldest letter is dropped and counted", async () => {
    const a = instance("a", { settings: { dlq_maxlen: 3 } });
    a.start();
    const jobs = Array.from({ length: 5 }, () => randomUUID());
    for (const job_id of jobs) {
      await a.send("a", bell({ job_id, deadline_ms: 0 }));
      await settled(a);
    }
    expect((await letters(a)).map(({ message }) => message!.job_id)).toEqual(jobs.slice(2));
    expect(await a.counts()).toMatchObject({ "buried.deadline": 5, dropped: 2 });
  });

  test("without dlq_enabled a message past its deadline is only counted", async () => {
    const a = instance("a", { settings: { dlq_enabled: false } });
    a.start();
    await a.send("a", bell({ deadline_ms: 0 }));
    await settled(a);
    expect(await letters(a)).toEqual([]);
    expect(await a.counts()).toMatchObject({ "buried.deadline": 1 });
  });

  test("a delivery that stops finishes the messages in flight and reads no more", async () => {
    let finish = () => {};
    const gate = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const a = instance("a", { receive: () => gate.then(() => "done" as const) });
    a.start();
    await a.send("a", bell());
    await until(() => a.received.length === 1, { what: "the message in flight" });
    let stopped = false;
    const stopping = a.stop().then(() => {
      stopped = true;
    });
    await a.send("a", bell());
    expect(stopped).toBe(false);
    finish();
    await stopping;
    const left = await a.pending();
    expect((await a.counts()).done).toBe(a.received.length);
    expect(left + a.received.length).toBe(2);
  });
});

describe.each(["redis", "redis-cluster"] as const)("inboxes on %s", (kind) => {
  beforeEach(() => open(kind));
  const redis = () => store as RedisStore;
  const alive = (instanceId: string) =>
    announcePresence(store, { instanceId, bootId: randomUUID() }, 600_000);
  const inboxOf = (instanceId: string) => deliveryKeys.inbox(store.prefix, instanceId);
  const view = { instanceId: "a", group: "scheduler", consumer: "a" };

  test("I7: the first sender opens the inbox: group at 0, instance on the list", async () => {
    await instance("sender").send("never-started", bell());
    const [group] = (await redis().client.xinfo("GROUPS", inboxOf("never-started"))) as unknown[][];
    expect(group).toEqual(
      expect.arrayContaining(["name", "scheduler", "last-delivered-id", "0-0"]),
    );
    expect((await listInboxes(store)).map((listed) => listed.instanceId)).toEqual([
      "never-started",
    ]);
    const late = instance("never-started");
    late.start();
    await settled(late);
    expect(late.received).toHaveLength(1);
  });

  test("an instance whose inbox was closed while it reads opens it again", async () => {
    const a = instance("a", { settings: { dlq_scan_interval_ms: 60_000 } });
    a.start();
    const open = () => until(entry, { what: "the inbox to be listed" });
    const entry = async () => {
      const isOpen = await redis().client.exists(inboxOf("a"));
      return isOpen && (await listInboxes(store)).find(({ instanceId }) => instanceId === "a");
    };
    const before = await open();
    // Not `retire`: the instance may list itself again before the second step of it, which then answers false.
    expect(await closeInbox(store, "a")).toBe(true);
    expect((await open()).entry).not.toBe(before.entry);
    await instance("sender").send("a", bell());
    await settled(a);
    expect(a.received).toHaveLength(1);
  });

  test("I7: 200 pending messages are all retried, none starves", async () => {
    const retried = new Set<string>();
    const a = instance("a", {
      settings: { dlq_max_deliveries: 1_000, dlq_scan_count: 64, dlq_scan_interval_ms: 1 },
      async receive({ job_id }) {
        retried.add(job_id);
        return "retry";
      },
    });
    await Promise.all(Array.from({ length: 200 }, () => a.send("a", bell())));
    await takeUnread(store, view, 200); // read by a process that then died
    a.start();
    await until(() => retried.size === 200, {
      deadlineMs: 60_000,
      what: "all 200 to be retried",
    }).finally(() => expect(retried.size).toBe(200));
    expect(await a.pending()).toBe(200);
  });

  test("I7: a message that cannot be parsed is a dead letter at once, with every byte", async () => {
    const junk = Buffer.from([0x7b, 0x00, 0xff, 0xfe, 0x22, 0xc3, 0x28]);
    const other = Buffer.from([0x80, 0x0a]);
    const a = instance("a");
    await redis().client.xadd(inboxOf("a"), "*", "m", junk, "t", time.wallMs());
    await redis().client.xadd(inboxOf("a"), "*", "payload", other, "more", "x");
    await redis().client.xadd(inboxOf("a"), "*", "m", `${JSON.stringify(bell())} `.repeat(99));
    a.start();
    await settled(a);
    expect(a.received).toEqual([]);
    const found = await letters(a);
    expect(found.map(({ reason, deliveries }) => [reason, deliveries])).toEqual(
      Array(3).fill(["unparsable", 1]),
    );
    const byPresence = found.map(({ bytes }) => bytes.toString("hex"));
    expect(byPresence).toContain(junk.toString("hex"));
    expect(byPresence).toContain(
      Buffer.concat([Buffer.from("payload\0"), other, Buffer.from("\0more\0x")]).toString("hex"),
    );
    expect(await a.dlq.redrive(found[0]!)).toEqual({ outcome: "unreadable" });
  });

  test("I7: a crash between effect and acknowledgement delivers the message again", async () => {
    armFailpoint("delivery.before-acknowledge", () => {
      disarmAll();
      throw new Error("killed here");
    });
    const a = instance("a");
    a.start();
    const message = bell();
    await a.send("a", message);
    await settled(a);
    expect(a.received.map(({ job_id }) => job_id)).toEqual([message.job_id, message.job_id]);
    expect(await a.counts()).toEqual({ sent: 1, left: 1, done: 1 });
  });

  test("a message in flight is not delivered a second time meanwhile", async () => {
    let finish = () => {};
    const gate = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const a = instance("a", { receive: () => gate.then(() => "done" as const) });
    a.start();
    await a.send("a", bell());
    await until(() => a.received.length === 1, { what: "the message in flight" });
    const scansUntilNow = a.scans();
    await until(() => a.scans() >= scansUntilNow + 3, { what: "three scans" });
    expect(a.received).toHaveLength(1);
    finish();
    await settled(a);
    expect(await a.counts()).toMatchObject({ done: 1 });
  });

  test("a message for a target connected elsewhere is forwarded, up to three times", async () => {
    const b = instance("b");
    const a = instance("a", { receive: async () => "elsewhere", route: async () => ({ to: "b" }) });
    await Promise.all([alive("a"), alive("b")]);
    a.start();
    b.start();
    const [near, far] = [bell({ hops: 2 }), bell({ hops: 3 })];
    await a.send("a", near);
    await a.send("a", far);
    await settled(a);
    await settled(b);
    expect(b.received).toEqual([{ v: 1, ...near, hops: 3 }]);
    expect(await a.dlq.list({ limit: 9, instanceId: "a" })).toMatchObject([
      { reason: "hops", message: far },
    ]);
    expect(await a.counts()).toMatchObject({ forwarded: 1, "buried.hops": 1 });
  });

  test("a message stays here while the inbox it should go to is full", async () => {
    const b = instance("b", { settings: { stream_maxlen: 1 } });
    await b.send("b", bell());
    const a = instance("a", {
      settings: { stream_maxlen: 1, dlq_max_deliveries: 1_000 },
      receive: async () => "elsewhere",
      route: async () => ({ to: "b" }),
    });
    await Promise.all([alive("a"), alive("b")]);
    a.start();
    await a.send("a", bell());
    await until(async () => ((await a.counts()).left ?? 0) >= 2, { what: "two refusals" });
    expect(await a.pending()).toBe(1);
    b.start();
    await settled(a);
    await settled(b);
    expect(b.received).toHaveLength(2);
  });
});

test("I7: a reader whose connection went silent replaces it", async () => {
  await open("redis");
  const [url] = redisSettings("redis").urls;
  const proxy = await startProxy({ targetPort: Number(new URL(url!).port) });
  const over = openRedis({
    mode: "single",
    urls: [`redis://127.0.0.1:${proxy.port}`],
    prefix: store.prefix,
  });
  await waitUntilReady(over, 5_000);
  const a = instance("a", { over });
  a.start();
  await a.send("a", bell());
  await settled(a);

  const sender = instance("sender");
  const [lost, next] = [bell(), bell()];
  const dropped = proxy.dropNextReply((reply) => reply.includes(lost.job_id));
  await sender.send("a", lost);
  await dropped;
  await sender.send("a", next);
  await until(() => a.received.length === 3, { what: "both messages" });
  expect(a.received.map(({ job_id }) => job_id)).toEqual(
    expect.arrayContaining([lost.job_id, next.job_id]),
  );
  await a.stop();
  await over.close();
  proxy.stop();
});

test("I7: delivery continues after Redis was down, also when it comes back empty", async () => {
  time = createManualClock();
  store = openMemory({ prefix: "unused", clock: time });
  // With its default, once a second, Redis may lose what it acknowledged a moment before a kill.
  const server = await startRedis({ conf: { appendfsync: "always" } });
  const over = openRedis({ mode: "single", urls: [server.url], prefix: "t" });
  await waitUntilReady(over, 5_000);
  const a = instance("a", { over });
  const back = { deadlineMs: 60_000, what: "delivery to go on" };
  const sendsAgain = () => until(async () => (await a.send("a", bell())).outcome === "sent", back);
  try {
    await a.send("a", bell());
    await server.kill();
    a.start();
    await expect(a.send("a", bell())).rejects.toMatchObject({ code: "DEPENDENCY_DOWN" });
    await server.start();
    await until(() => a.received.length === 1, back);

    await server.restartEmpty();
    await sendsAgain();
    await until(() => a.received.length >= 2, back);
  } finally {
    await a.stop();
    await over.close();
    await server.discard();
  }
});

test("an instance without Redis has an empty backlog and no dead letters", async () => {
  time = createManualClock();
  store = openMemory({ prefix: "unused", clock: time });
  const a = instance("a");
  a.start();
  expect(await a.backlog("a")).toEqual({ messages: 0, letters: 0 });
  expect(await letters(a)).toEqual([]);
  expect(await a.dlq.redrive({ instanceId: "a", streamId: "1-0" })).toEqual({ outcome: "absent" });
  expect(await a.nowMs()).toBe(time.wallMs());
  await expect(a.send("b", bell())).rejects.toThrow("no peers");
});
