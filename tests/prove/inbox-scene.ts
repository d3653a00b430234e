import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { createSeeded } from "@tenure/testing/seeded";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import type * as contract from "../../packages/server/dist/delivery/contract.js";
import type * as deliveryModule from "../../packages/server/dist/delivery/delivery.js";
import type * as clockModule from "../../packages/server/dist/kernel/clock.js";
import type * as logModule from "../../packages/server/dist/kernel/log.js";
import type { RedisSettings } from "../../packages/server/dist/store/redis.js";
import { loadRedisStore } from "./built-server.ts";

export interface InboxScene {
  startInstance(instanceId: string): Promise<RunningProcess>;
  /** Whom the target of every message is connected to. */
  ownedBy(instanceId: string): Promise<void>;
  /** Sends this share of all messages to `to`, many at a time. */
  send(to: string, share: number): Promise<void>;
  untilEffects(share: number): Promise<void>;
  /** Until the presence of an instance has run out. */
  untilAbsent(instanceId: string): Promise<void>;
  untilBacklog(instanceId: string, atMost: number): Promise<void>;
  backlog(instanceId: string): Promise<number>;
  account(): Promise<Account>;
  /** Discards all dead letters and waits until the instance is off the list. */
  clearAway(instanceId: string): Promise<void>;
  close(): Promise<void>;
}

/** What became of every message. */
export interface Account {
  sent: number;
  effects: number;
  /** Further effects of messages that had one: harmless, but worth knowing. */
  repeated: number;
  superseded: number;
  refused: number;
  letters: Record<string, number>;
  /** In none of these. */
  missing: string[];
  /** Refused, and yet somewhere else too. */
  twofold: string[];
}

const SERVER = join(repositoryRoot, "packages/server/dist");
const PRESENCE_TTL_MS = 1_000;
const LIFE_MS = 600_000;
const AT_ONCE = 250;

export async function createInboxScene(
  redis: Pick<RedisSettings, "mode" | "urls">,
  { count, seed }: { count: number; seed: number },
): Promise<InboxScene> {
  const { openRedis, waitUntilReady } = await loadRedisStore();
  const [{ createDelivery }, { systemClock }, { silentLog }] = await Promise.all([
    load<typeof deliveryModule>("delivery/delivery.js"),
    load<typeof clockModule>("kernel/clock.js"),
    load<typeof logModule>("kernel/log.js"),
  ]);
  const connection = { ...redis, prefix: uniqueKeyPrefix() };
  const store = openRedis(connection);
  await waitUntilReady(store, 10_000);
  const { client, prefix } = store;
  const [owner, attempts, superseded, effects] = ["owner", "attempts", "superseded", "effects"].map(
    (name) => `${prefix}:{proof}:${name}`,
  ) as [string, string, string, string];
  const settings = settingsFor(count);
  const sender = createDelivery({
    store,
    instanceId: "i-sender",
    settings,
    clock: systemClock,
    log: silentLog,
    receive: async () => "retry",
    route: async () => "wait",
  });

  const random = createSeeded(seed).fraction;
  const messages = Array.from({ length: count }, () => draw(random()));
  for (const some of chunks(messages, 1_000))
    await client.hset(attempts, Object.fromEntries(some.map(({ id }) => [id, 2])));
  const refused = new Set<string>();
  let next = 0;

  async function post(to: string, { id, nature }: Message): Promise<void> {
    if (nature === "unparsable") {
      const key = `${prefix}:streams:{instance:${to}}:inbox`;
      const added = await client.xadd(key, "NOMKSTREAM", "*", "m", bytesOf(id), "t", "0");
      if (added === null) refused.add(id); // the inbox is closed
      return;
    }
    const sent = await sender.send(to, {
      kind: nature === "poison" ? "poison" : "job.finished",
      job_id: id,
      attempt_id: nature === "old" ? 1 : 2,
      deadline_ms: Date.now() + (nature === "urgent" ? 200 : LIFE_MS),
    });
    if (sent.outcome === "full") refused.add(id);
  }

  async function letters(): Promise<contract.DeadLetter[]> {
    const found: contract.DeadLetter[] = [];
    for (;;) {
      const page = await sender.dlq.list({ limit: 500, after: found.at(-1) });
      found.push(...page);
      if (page.length === 0) return found;
    }
  }

  const backlog = async (of: string) => (await sender.backlog(of)).messages;

  return {
    backlog,
    async startInstance(instanceId) {
      const options = {
        instanceId,
        redis: connection,
        settings,
        presenceTtlMs: PRESENCE_TTL_MS,
        keys: { owner, attempts, superseded, effects },
      };
      const program = join(repositoryRoot, "tests/prove/inbox-instance.js");
      const args = [program, SERVER, JSON.stringify(options)];
      const instance = startProcess({ command: process.execPath, args });
      await instance.waitForLine(/reading/);
      return instance;
    },
    async ownedBy(instanceId) {
      await client.set(owner, instanceId);
    },
    async send(to, share) {
      const some = messages.slice(next, next + Math.round(share * count));
      next += some.length;
      for (const few of chunks(some, AT_ONCE))
        await Promise.all(few.map((message) => post(to, message)));
    },
    async untilEffects(share) {
      const wanted = share * count;
      await until(async () => (await client.hlen(effects)) >= wanted, { what: "first effects" });
    },
    async untilAbsent(instanceId) {
      const key = `${prefix}:schedulers:presence:${instanceId}`;
      const gone = async () => (await client.exists(key)) === 0;
      await until(gone, { what: `the presence of ${instanceId} to run out` });
    },
    async untilBacklog(of, atMost) {
      const small = async () => (await backlog(of)) <= atMost;
      await until(small, { deadlineMs: 120_000, what: `the inbox of ${of} to be at ${atMost}` });
    },
    async account() {
      const done = await client.hgetall(effects);
      const late = await client.hgetall(superseded);
      const dead = await letters();
      const buried = new Set(dead.map(({ message, bytes }) => message?.job_id ?? idOf(bytes)));
      const isSomewhere = ({ id }: Message) => id in done || id in late || buried.has(id);
      const sent = messages.slice(0, next);
      const runs = Object.values(done).map(Number);
      return {
        sent: sent.length,
        effects: runs.length,
        repeated: runs.reduce((sum, times) => sum + times - 1, 0),
        superseded: Object.keys(late).length,
        refused: refused.size,
        letters: countBy(dead.map(({ reason }) => reason)),
        missing: sent.filter((m) => !refused.has(m.id) && !isSomewhere(m)).map(({ id }) => id),
        twofold: sent.filter((m) => refused.has(m.id) && isSomewhere(m)).map(({ id }) => id),
      };
    },
    async clearAway(instanceId) {
      for (const letter of await letters()) await sender.dlq.discard(letter);
      const gone = async () => !(await client.hexists(`${prefix}:schedulers:all`, instanceId));
      await until(gone, { what: `${instanceId} to leave the list` });
    },
    close: () => store.close(),
  };
}

type Nature = "plain" | "old" | "urgent" | "poison" | "unparsable";

interface Message {
  id: string;
  nature: Nature;
}

/** Mostly plain ones; some of an older attempt, some that cannot wait, some that nobody can do or read. */
function draw(chance: number): Message {
  const bounds: [number, Nature][] = [
    [0.03, "old"],
    [0.05, "urgent"],
    [0.06, "poison"],
    [0.07, "unparsable"],
  ];
  const nature = bounds.find(([bound]) => chance < bound)?.[1] ?? "plain";
  return { id: randomUUID(), nature };
}

/** A message that is no UTF-8, and still says which it was. */
const bytesOf = (id: string): Buffer => Buffer.concat([Buffer.from([0xff, 0x00]), Buffer.from(id)]);
const idOf = (bytes: Buffer): string => bytes.subarray(2).toString();

const settingsFor = (count: number): contract.DeliverySettings => ({
  stream_group: "scheduler",
  stream_block_ms: 100,
  stream_count: 64,
  stream_maxlen: Math.round(count * 0.65),
  dlq_enabled: true,
  dlq_maxlen: count,
  dlq_max_deliveries: 5,
  dlq_scan_interval_ms: 100,
  dlq_scan_count: 100,
});

function load<Module>(file: string): Promise<Module> {
  return import(/* @vite-ignore */ pathToFileURL(join(SERVER, file)).href);
}

function chunks<T>(items: readonly T[], size: number): T[][] {
  const starts = Array.from({ length: Math.ceil(items.length / size) }, (_, at) => at * size);
  return starts.map((start) => items.slice(start, start + size));
}

function countBy(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}
