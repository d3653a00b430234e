import { randomUUID } from "node:crypto";
import { until } from "@tenure/testing/until";
import { Registry } from "prom-client";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { armFailpoint, disarmAll } from "../../testing/failpoints.js";
import { openTestHot } from "../../testing/hot-stores.ts";
import { systemClock } from "../kernel/clock.ts";
import { silentLog } from "../kernel/log.ts";
import { announcePresence } from "../membership/store/presence-store.ts";
import type { RedisStore } from "../store/redis.ts";
import { deliveryMetrics, metricsIn } from "../telemetry.ts";
import type { Delivery, DeliverySettings, Destination, Received } from "./contract.ts";
import { createDelivery } from "./delivery.ts";
import { deliveryKeys } from "./delivery-keys.ts";
import type { Doorbell, NewDoorbell } from "./doorbell.ts";
import { listInboxes, markInbox } from "./inbox-registry-store.ts";
import { readBacklog, takeUnread } from "./inbox-store.ts";

const SETTINGS: DeliverySettings = {
  stream_group: "scheduler",
  stream_block_ms: 20,
  stream_count: 64,
  stream_maxlen: 10_000,
  dlq_enabled: true,
  dlq_maxlen: 100,
  dlq_max_deliveries: 3,
  dlq_scan_interval_ms: 5,
  dlq_scan_count: 20,
};

describe.each(["redis", "redis-cluster"] as const)("inboxes of dead instances on %s", (kind) => {
  let store: RedisStore;
  let running: Delivery[] = [];
  /** Where the target of every message is connected, and how often anybody asked. */
  let owner: Destination;
  let asked: number;
  let settings: DeliverySettings;

  beforeEach(async () => {
    store = (await openTestHot(kind)).hot as RedisStore;
    owner = { to: "b" };
    asked = 0;
    settings = SETTINGS;
  });
  afterEach(async () => {
    disarmAll();
    await Promise.all(running.map((delivery) => delivery.stop()));
    running = [];
    await store.close();
  });

  function instance(instanceId: string, receive: () => Promise<Received> = async () => "done") {
    const received: Doorbell[] = [];
    const delivery = createDelivery({
      store,
      instanceId,
      settings,
      clock: systemClock,
      log: silentLog,
      telemetry: deliveryMetrics(metricsIn(new Registry())),
      async route() {
        asked += 1;
        return owner;
      },
      receive(message) {
        received.push(message);
        return receive();
      },
    });
    running.push(delivery);
    return Object.assign(delivery, { received, jobs: () => jobsOf(received) });
  }

  const alive = (instanceId: string) =>
    announcePresence(store, { instanceId, bootId: randomUUID() }, 600_000);

  async function startLive(instanceId: string, receive?: () => Promise<Received>) {
    await alive(instanceId);
    const delivery = instance(instanceId, receive);
    delivery.start();
    return delivery;
  }

  /** Messages to `to`, of which the first `read` were read by a process that then died. */
  async function sendTo(to: string, { count, read = 0 }: { count: number; read?: number }) {
    const messages = Array.from({ length: count }, () => bell());
    const sender = instance("sender");
    for (const message of messages) await sender.send(to, message);
    const view = { instanceId: to, group: "scheduler", consumer: to };
    if (read > 0) await takeUnread(store, view, read);
    return jobsOf(messages);
  }

  const listed = async () => (await listInboxes(store)).map(({ instanceId }) => instanceId);
  const emptied = (instanceId: string) =>
    until(async () => (await readBacklog(store, instanceId)).messages === 0, {
      what: `the inbox of ${instanceId} to be empty`,
    });
  const retired = (instanceId: string) =>
    until(async () => !(await listed()).includes(instanceId), {
      what: `${instanceId} to leave the list`,
    });

  test("I7: unread and pending, all are adopted, and then nothing is left of it", async () => {
    const jobs = await sendTo("dead", { count: 150, read: 70 });
    const b = await startLive("b");
    await retired("dead");
    expect(b.jobs()).toEqual(jobs);
    expect(await readBacklog(store, "dead")).toEqual({ messages: 0, letters: 0 });
    expect(await listed()).toEqual(["b"]);
  });

  test("I7: a message goes on to the instance its target is connected to", async () => {
    owner = { to: "c" };
    const jobs = await sendTo("dead", { count: 3, read: 1 });
    const b = await startLive("b");
    await retired("dead");
    expect(b.received).toEqual([]);
    const c = await startLive("c");
    await emptied("c");
    expect(c.jobs()).toEqual(jobs);
    expect(c.received.map(({ hops }) => hops)).toEqual([1, 1, 1]);
  });

  test("I7: while its owner is the dead one a message waits, and does not wear out", async () => {
    owner = { to: "dead" };
    const jobs = await sendTo("dead", { count: 5, read: 2 });
    const b = await startLive("b");
    const rounds = SETTINGS.dlq_max_deliveries + 2;
    await until(() => asked >= 5 * rounds, { what: `${rounds} rounds` });
    owner = "wait";
    await until(() => asked >= 10 * rounds, { what: `${rounds} more` });
    expect(b.received).toEqual([]);
    owner = { to: "b" };
    await retired("dead");
    expect(b.jobs()).toEqual(jobs);
  });

  test("I7: a message whose purpose is gone is acknowledged as superseded", async () => {
    owner = "gone";
    await sendTo("dead", { count: 5, read: 2 });
    const b = await startLive("b");
    await retired("dead");
    expect(b.received).toEqual([]);
  });

  test("I7: after three hops a message is a dead letter, which keeps its instance listed", async () => {
    owner = { to: "c" };
    const message = bell({ hops: 3 });
    await instance("sender").send("dead", message);
    const b = await startLive("b");
    await emptied("dead");
    const letters = await b.dlq.list({ limit: 10 });
    expect(letters).toMatchObject([{ instanceId: "dead", reason: "hops", message }]);
    expect(await listed()).toContain("dead");
    await b.dlq.discard(letters[0]!);
    await retired("dead");
  });

  test("I7: a crash after it was sent on leaves it in both inboxes, never in none", async () => {
    owner = { to: "c" };
    const [job] = await sendTo("dead", { count: 1 });
    let crashes = 2;
    armFailpoint("delivery.before-acknowledge", () => {
      if (crashes-- > 0) throw new Error("killed here");
    });
    await startLive("b");
    await retired("dead");
    const c = await startLive("c");
    await emptied("c");
    expect(c.jobs()).toEqual([job, job, job]);
  });

  test("I7: an instance that was only paused comes back while its inbox is adopted", async () => {
    let thaw = () => {};
    const pause = new Promise<void>((resolve) => {
      thaw = resolve;
    });
    const paused = instance("paused", () => pause.then(() => "done" as const));
    paused.start();
    const jobs = await sendTo("paused", { count: 100 });
    await until(() => paused.received.length === SETTINGS.stream_count, { what: "a full hand" });
    const b = await startLive("b");
    await emptied("paused");
    expect(b.jobs()).toEqual(jobs);

    await alive("paused");
    thaw();
    const more = await sendTo("paused", { count: 5 });
    await emptied("paused");
    const effects = new Set([...b.jobs(), ...paused.jobs()]);
    expect(effects).toEqual(new Set([...jobs, ...more]));
    expect(paused.jobs()).toEqual(expect.arrayContaining(more));
    expect(await listed()).toContain("paused");
  });

  test("dead letters of a dead instance are kept for seven days, and then nothing is left of it", async () => {
    const dayMs = 86_400_000;
    for (const [instanceId, days] of [
      ["dead-for-long", 7.1],
      ["dead-of-late", 6.9],
    ] as const) {
      await markInbox(store, { instanceId, mark: randomUUID() });
      const id = `${Math.floor(Date.now() - days * dayMs)}-0`;
      const fields = ["bytes", "{}", "reason", "expired", "deliveries", 1];
      const times = ["moved_at_ms", 1, "age_ms", 1];
      await store.client.xadd(
        deliveryKeys.dlq(store.prefix, instanceId),
        id,
        ...[...fields, ...times],
      );
    }
    await startLive("b");
    await retired("dead-for-long");
    expect(await readBacklog(store, "dead-for-long")).toEqual({ messages: 0, letters: 0 });
    expect(await readBacklog(store, "dead-of-late")).toEqual({ messages: 0, letters: 1 });
    expect(await listed()).toEqual(["b", "dead-of-late"]);
  });

  test("five live instances share what a dead one left, each message to one of them", async () => {
    owner = "gone";
    await sendTo("dead", { count: 100 });
    // So long that nobody takes from another what is still in its hands: there is one scan each.
    settings = { ...SETTINGS, dlq_scan_interval_ms: 60_000 };
    await Promise.all(["b", "c", "d", "e", "f"].map((instanceId) => startLive(instanceId)));
    await emptied("dead");
    await Promise.all(running.splice(0).map((delivery) => delivery.stop()));
    expect(asked).toBe(100);
  });
});

const bell = (words: Partial<NewDoorbell> = {}): NewDoorbell => ({
  kind: "job.finished",
  job_id: randomUUID(),
  attempt_id: 1,
  deadline_ms: Date.now() + 600_000,
  ...words,
});

const jobsOf = (messages: readonly Pick<NewDoorbell, "job_id">[]): string[] =>
  messages.map(({ job_id }) => job_id).sort();
