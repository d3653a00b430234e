import { randomUUID } from "node:crypto";
import { call, withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import { Cluster, Redis } from "ioredis";
import type { Dimension, OwnFault } from "../dimension.ts";
import { historyOf } from "../history-of.ts";
import type { Scene, Workload } from "../workload.ts";
import { keyOf, startRecordedNode } from "../workloads/node-unit.ts";
import type { World } from "../world.ts";
import {
  type Child,
  checkSteady,
  childrenOf,
  expectPeace,
  failOver,
  historyIn,
  keyOfChild,
  loadSteadily,
  recordMet,
  recordProblem,
  steadyUnits,
  urlsOf,
} from "./steady-fleet.ts";

const NAME = "calendar";
const DAY_MS = 86_400_000;
const SCRAPPED = "calendar-scrapped";

/** How long a row may be kept: its retention, and a day for a sweep that is late. */
const KEPT: Record<string, { at: string; days: number }> = {
  event: { at: "at", days: 31 },
  deployment_removed: { at: "removed_at", days: 2 },
  signer_nonce_request: { at: "created_at", days: 31 },
};

interface Kept {
  /** Rows that are older than their retention, by table. */
  overdue: Record<string, number>;
  /** Jobs that had ended before the days passed and of which Redis still has something: where. */
  leftOfJobs: string[];
  forgotten: { events: number; requests: number };
  quarantined: number;
}

const HAZARDS = {
  days_1: ["days.one"],
  days_30: ["days.month"],
  days_400: ["days.year"],
  failovers: ["days.one", "days.month", "days.year"],
  new_instances: ["days.one", "days.month", "days.year"],
  events_forgotten: ["days.year"],
  requests_forgotten: ["days.year"],
  holds_expired: ["days.one"],
};

const calendar: Workload = {
  name: NAME,
  promises: "I1, I3, I9 after 1, 30 and 400 days",
  clients: 1,
  uses: ["hosts"],
  survivesHotLoss: false,
  parties: [steadyUnits(NAME)],
  load: loadSteadily,
  async settle() {}, // every fault waits for peace itself
  hazards: HAZARDS,
  read,
  check(events: RecordedEvent[], kept: Kept) {
    const found = checkSteady(events, Object.keys(HAZARDS));
    const overdue = Object.entries(kept.overdue).filter(([, count]) => count > 0);
    found.reached.events_forgotten = kept.forgotten.events;
    found.reached.requests_forgotten = kept.forgotten.requests;
    found.reached.holds_expired = kept.quarantined;
    return {
      ...found,
      violations: [
        ...found.violations,
        ...overdue.map(([table, count]) => `${count} rows of ${table} outlived their retention`),
        ...kept.leftOfJobs.map((where) => `an ended job is still in Redis: ${where}`),
      ],
    };
  },
};

const passing = (fault: string, days: number): OwnFault => ({
  card: { role: "days", fault, count: 1, lastsMs: [8_000, 8_000] },
  act: (world) => passDays(world, days),
});

export const time: Dimension = {
  name: "time",
  summary:
    "1, 30 and 400 days pass at once for Postgres, Redis and the instances, while everything runs",
  workloads: [calendar],
  faults: ["days.*"],
  ownFaults: [passing("one", 1), passing("month", 30), passing("year", 400)],
  pace: { gapMs: [500, 1_000] },
  seconds: 34,
  world: { movesRedisClock: true },
  prepare,
};

/** A node-unit that was there once, numbers nobody marks, and a deployment that was deleted. */
async function prepare(world: World): Promise<void> {
  const history = historyIn(world, NAME);
  const [url = ""] = urlsOf(world);
  const node = startRecordedNode({
    name: SCRAPPED,
    key: keyOf(`${SCRAPPED} ${world.directory}`),
    urls: [url],
    history,
  });
  await until(() => node.connection.registration, { what: "the node that will be scrapped" });
  await node.connection.close();
  for (let n = 0; n < 3; n++)
    await call(url, "/signers/silent/nonces", { body: { request_id: randomUUID() } });
  const { body } = await call(url, "/deployments", { body: { name: "gone", command: "true" } });
  await call(url, `/deployments/${body.id}`, { method: "DELETE" });
}

/**
 * The days pass, and what lives has renewed itself meanwhile: leases that are valid now are valid afterwards. Then
 * everything must work as before, nothing may have moved, a new instance (which sweeps what is old when it starts) must
 * become ready, and a lost node-unit must be replaced.
 */
async function passDays(world: World, days: number): Promise<void> {
  const history = historyIn(world, NAME);
  const after = `${days} days later`;
  const [url = ""] = urlsOf(world);
  const isPeace = async (when: string) =>
    (await expectPeace(world, { prefix: NAME, history, after: when })).length === 0;
  if (!(await isPeace(`before ${days} days pass`))) return;
  const before = await childrenOf(url);
  await moveClocks(world, days);
  if (!(await isPeace(after))) return;
  recordMet(history, `days_${days}`);
  reportMoved(history, { before, after: await childrenOf(url), when: after });

  // Node-units prefer the first. Those of an instance that stops report everything again, and nothing of theirs is old.
  const instance = world.instances.at(-1)!;
  await instance.stop();
  await instance.start();
  const renewed = `${after}, with a new instance`;
  if (!(await isPeace(renewed))) return;
  recordMet(history, "new_instances");
  reportMoved(history, { before, after: await childrenOf(url), when: renewed });
  await failOver(world, { prefix: NAME, when: after });
}

function reportMoved(
  history: HistoryRecorder,
  { before, after, when }: { before: Child[]; after: Child[]; when: string },
): void {
  const now = new Set(after.map(keyOfChild));
  for (const child of before.map(keyOfChild))
    if (!now.has(child)) recordProblem(history, `${when} ${child} does not run any more`);
}

const movedDays = new WeakMap<World, number>();

/** `tenure_now()`, Redis and the wall clocks of the instances. Node-units and monotonic clocks stay. */
async function moveClocks(world: World, days: number): Promise<void> {
  const total = (movedDays.get(world) ?? 0) + days;
  movedDays.set(world, total);
  await withClient(world.postgres.uri(), async (client) => {
    await client.query(`
      begin;
      update node_unit set presence_expires_at = presence_expires_at + interval '${days} days'
       where online and presence_expires_at > tenure_now();
      update instance set expires_at = expires_at + interval '${days} days' where expires_at > tenure_now();
      update signer_lease set expires_at = expires_at + interval '${days} days' where expires_at > tenure_now();
      create or replace function tenure_now() returns timestamptz language sql volatile
        return clock_timestamp() + interval '${total} days';
      commit;`);
  });
  const seconds = (total * DAY_MS) / 1_000;
  world.redisClock?.move(seconds);
  for (const { clock } of world.instances) clock?.move(seconds);
}

async function read(scene: Scene): Promise<Kept> {
  return withClient(scene.postgresUri, async (client) => {
    const overdue: Record<string, number> = {};
    const count = async (text: string) =>
      Number((await client.query<{ n: string }>(`select count(*) as n from ${text}`)).rows[0]!.n);
    for (const [table, { at, days }] of Object.entries(KEPT))
      overdue[table] = await count(`${table} where ${at} < tenure_now() - interval '${days} days'`);
    const events = historyOf(scene);
    const lastMove = events.filter(({ f }) => f === "met").at(-1)?.time ?? 0;
    const jobs = events
      .filter(({ f, type, time: at }) => f === "job" && type === "ok" && at < lastMove - 60e9)
      .map(({ value }) => (value as { job_id: string }).job_id);
    const asked = events.filter(({ f, type }) => f === "allocate" && type === "ok").length;
    return {
      overdue,
      leftOfJobs: await keysNaming(scene, jobs.slice(0, 50)),
      forgotten: {
        events: 1 - (await count("event where id = 1")),
        requests: Math.max(0, asked - (await count("signer_nonce_request"))),
      },
      quarantined: await count("signer_nonce_allocation where status = 'QUARANTINED'"),
    };
  });
}

/** Keys of Redis whose name or content names one of these jobs. */
async function keysNaming({ redis }: Scene, jobs: readonly string[]): Promise<string[]> {
  const client = redis.mode === "single" ? new Redis(redis.urls[0]!) : new Cluster(redis.urls);
  client.on("error", () => {});
  const found: string[] = [];
  try {
    const nodes = client instanceof Cluster ? client.nodes("master") : [client];
    for (const node of nodes)
      for (const key of await node.keys(`${redis.prefix}:*`)) {
        const text = `${key} ${await contentOf(node, key)}`;
        const job = jobs.find((id) => text.includes(id));
        if (job) found.push(`${key} names ${job}`);
      }
  } finally {
    client.disconnect();
  }
  return found;
}

async function contentOf(node: Redis, key: string): Promise<string> {
  switch (await node.type(key)) {
    case "zset":
      return (await node.zrange(key, "0", "-1")).join(" ");
    case "set":
      return (await node.smembers(key)).join(" ");
    case "hash":
      return JSON.stringify(await node.hgetall(key));
    case "list":
      return (await node.lrange(key, 0, -1)).join(" ");
    case "string":
      return (await node.get(key)) ?? "";
    default:
      return ""; // a stream keeps what was sent until it is acknowledged, whatever the day
  }
}
