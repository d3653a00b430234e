import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import type * as contract from "../../../packages/server/dist/delivery/contract.js";
import type * as deliveryModule from "../../../packages/server/dist/delivery/delivery.js";
import type * as clockModule from "../../../packages/server/dist/kernel/clock.js";
import type * as logModule from "../../../packages/server/dist/kernel/log.js";
import type * as redisModule from "../../../packages/server/dist/store/redis.js";
import type * as telemetryModule from "../../../packages/server/dist/telemetry.js";
import { checkMessages, type MessageStores, type SendAsk } from "../checkers/messages.ts";
import { operationsOf } from "../checkers/operations.ts";
import { READ_MS, type Scene, type Workload } from "../workload.ts";
import { type Caller, runCallers } from "./callers.ts";

const CALLERS = 4;
const LIFE_MS = 900_000;
const PRESENCE_TTL_MS = 2_000;
const CURRENT_ATTEMPT = 2;

/** I7: senders who have not heard of a death, readers that are killed, stopped and replaced in the middle of it. */
export const inbox: Workload = {
  name: "inbox",
  promises: "I7",
  clients: 1,
  uses: ["redis"],
  isNewestOnly: true,
  survivesHotLoss: false,
  parties: [
    {
      role: "reader",
      count: 3,
      uses: ["redis"],
      readyLine: /reading/,
      start: (scene) => ({
        command: process.execPath,
        // Between an effect and its acknowledgement lies a moment in which a death means a second effect. It is made
        // longer here, so that it is met.
        env: { TENURE_FAILPOINTS: "delivery.before-acknowledge=delay:150" },
        args: [
          "--conditions=tenure-test",
          join(scene.programsRoot, "tests/prove/inbox-instance.js"),
          scene.serverDirectory,
          JSON.stringify({
            // Another one with every start: nobody would ever read its old inbox but those who adopt it.
            instanceId: `${scene.name}.${scene.start}`,
            redis: redisOf(scene),
            settings: SETTINGS,
            presenceTtlMs: PRESENCE_TTL_MS,
            keys: keysOf(scene),
          }),
        ],
      }),
    },
  ],
  async load(context) {
    const { scene, history } = context;
    const post = await openPost(scene);
    const keys = keysOf(scene);
    await runCallers(context, CALLERS, async (caller) => {
      try {
        const { present, absent } = await post.readers();
        if (present.length > 0 && caller.chance(0.02))
          await post.client.set(keys.owner, caller.oneOf(present));
        const isLate = absent.length > 0 && caller.chance(0.15);
        const to = isLate ? caller.oneOf(absent) : caller.oneOf(present);
        if (!to) return await caller.pause(50, 200);
        const ask: SendAsk = { to, message_id: randomUUID(), old: caller.chance(0.08) };
        await post.client.hset(keys.attempts, ask.message_id, CURRENT_ATTEMPT);
        const value = { process: caller.name, f: "send", value: { ...ask, absent: isLate } };
        const isRefusal = (error: unknown) => String(error).includes("INBOX_FULL");
        await history.run(value, () => post.send(ask, deadlineFor(caller, isLate)), isRefusal);
      } catch {
        await caller.pause(50, 200);
      }
      await caller.pause(2, 30);
    });
  },
  async settle({ scene, deadlineMs }) {
    const post = await openPost(scene);
    const isEmpty = async (): Promise<boolean> => {
      const { present, absent } = await post.readers();
      const [owner] = present;
      if (!owner) return false;
      await post.client.set(keysOf(scene).owner, owner);
      const backlogs = await Promise.all([...present, ...absent].map(post.backlog));
      const left = backlogs.reduce((sum, messages) => sum + messages, 0);
      if (left > 0) throw new Error(`${left} messages are left`);
      return true;
    };
    await until(isEmpty, { deadlineMs, everyMs: 200, what: "every inbox to be empty" });
    await post.close();
  },
  hazards: {
    effects: [],
    redeliveries: ["reader.kill"],
    superseded: [],
    dead_letters: ["reader.kill", "reader.freeze:4000"],
    refused: ["reader.freeze:4000"],
    adoptions: ["reader.kill"],
  },
  read,
  check(events: RecordedEvent[], stores: MessageStores) {
    const sends = operationsOf<SendAsk & { absent: boolean }>(events, "send");
    const adopted = sends.filter(
      ({ type, asked }) => type === "ok" && asked.absent && asked.message_id in stores.effects,
    ).length;
    return checkMessages(sends, { ...stores, adopted });
  },
};

/** Some cannot wait: they are dead letters when nobody reads them in time, as with one who is gone. */
const deadlineFor = (caller: Caller, isLate: boolean): number =>
  Date.now() + (caller.chance(isLate ? 0.3 : 0.03) ? 100 : LIFE_MS);

const redisOf = ({ redis }: Scene) => ({ ...redis, prefix: `${redis.prefix}-inbox` });

function keysOf({ redis: { prefix } }: Scene) {
  const key = (name: string) => `${prefix}-inbox:{faults}:${name}`;
  return {
    owner: key("owner"),
    attempts: key("attempts"),
    superseded: key("superseded"),
    effects: key("effects"),
  };
}

const SETTINGS: contract.DeliverySettings = {
  stream_group: "scheduler",
  stream_block_ms: 200,
  stream_count: 64,
  stream_maxlen: 20,
  dlq_enabled: true,
  dlq_maxlen: 100_000,
  dlq_max_deliveries: 50,
  dlq_scan_interval_ms: 200,
  dlq_scan_count: 100,
};

async function openPost(scene: Scene, { commandTimeoutMs = 2_000 } = {}) {
  const load = <Module>(file: string): Promise<Module> =>
    import(pathToFileURL(join(scene.serverDirectory, file)).href);
  const [
    { openRedis, waitUntilReady },
    { createDelivery },
    { systemClock },
    { silentLog },
    { createTelemetry },
  ] = await Promise.all([
    load<typeof redisModule>("store/redis.js"),
    load<typeof deliveryModule>("delivery/delivery.js"),
    load<typeof clockModule>("kernel/clock.js"),
    load<typeof logModule>("kernel/log.js"),
    load<typeof telemetryModule>("telemetry.js"),
  ]);
  const store = openRedis({ ...redisOf(scene), commandTimeoutMs });
  await until(() => waitUntilReady(store, 5_000).then(() => true), {
    deadlineMs: 60_000,
    what: "Redis",
  });
  const delivery = createDelivery({
    store,
    instanceId: "sender",
    settings: SETTINGS,
    clock: systemClock,
    log: silentLog,
    telemetry: createTelemetry(),
    receive: async () => "retry",
    route: async () => "wait",
  });
  const { client, prefix } = store;
  return {
    client,
    /** Those whose inbox somebody has to read, alive or not. */
    async readers() {
      const everyone = await client.hkeys(`${prefix}:schedulers:all`);
      const alive = await Promise.all(
        everyone.map((id) => client.exists(`${prefix}:schedulers:presence:${id}`)),
      );
      return {
        present: everyone.filter((_, index) => alive[index] === 1),
        absent: everyone.filter((_, index) => alive[index] === 0),
      };
    },
    async send({ to, message_id, old }: SendAsk, deadlineMs: number) {
      const sent = await delivery.send(to, {
        kind: "job.finished",
        job_id: message_id,
        attempt_id: old ? CURRENT_ATTEMPT - 1 : CURRENT_ATTEMPT,
        deadline_ms: deadlineMs,
      });
      if (sent.outcome === "full") throw new Error("INBOX_FULL");
      return sent;
    },
    backlog: async (of: string) => (await delivery.backlog(of)).messages,
    async letters(): Promise<string[]> {
      const found: contract.DeadLetter[] = [];
      for (;;) {
        const page = await delivery.dlq.list({ limit: 500, after: found.at(-1) });
        found.push(...page);
        if (page.length === 0) return found.map(({ message }) => message?.job_id ?? "unreadable");
      }
    },
    close: () => store.close(),
  };
}

async function read(scene: Scene): Promise<MessageStores> {
  const post = await openPost(scene, { commandTimeoutMs: READ_MS });
  const { effects, superseded } = keysOf(scene);
  const numbers = (found: Record<string, string>) =>
    Object.fromEntries(Object.entries(found).map(([id, times]) => [id, Number(times)]));
  const { present, absent } = await post.readers();
  const backlogs = await Promise.all([...present, ...absent].map(post.backlog));
  const stores = {
    effects: numbers(await post.client.hgetall(effects)),
    superseded: numbers(await post.client.hgetall(superseded)),
    letters: await post.letters(),
    left: backlogs.reduce((sum, messages) => sum + messages, 0),
    adopted: 0,
  };
  await post.close();
  return stores;
}
