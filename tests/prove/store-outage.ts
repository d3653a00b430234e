import assert from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { createDatabase } from "@tenure/testing/stores/database";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { startRedis } from "@tenure/testing/stores/redis";
import { type RedisCluster, startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { until } from "@tenure/testing/until";
import type { Proof, ProofRun } from "./proof.ts";

const NOTICED_LIMIT_MS = 15_000;
const RECOVERED_LIMIT_MS = 30_000;
/**
 * How long anybody waits. `/health/live` asks no store: whatever a store does, only the process itself can be late. A
 * test run shares its machine, which stands still now and then.
 */
const LIMITS_MS = { full: { ready: 5_000, live: 1_000 }, ci: { ready: 10_000, live: 10_000 } };

export const storeOutage: Proof = {
  name: "store-outage",
  summary: "a store stopped or frozen under a running server: 503 names it, then 200 by itself",
  async run({ size, print }) {
    const [postgres, redis, cluster] = await Promise.all([
      startPostgres(),
      startRedis(),
      startRedisCluster(),
    ]);
    try {
      const common = { postgres, size, print };
      const none = {};
      await suffer({ name: "Postgres", blames: "postgres", store: postgres, use: none, ...common });
      const single = { redisUrl: redis.url };
      await suffer({ name: "Redis", blames: "redis", store: redis, use: single, ...common });
      const all = { clusterUrls: cluster.urls };
      const whole = asOne(cluster);
      await suffer({ name: "Redis Cluster", blames: "redis", store: whole, use: all, ...common });
    } finally {
      await Promise.all([postgres.discard(), redis.discard(), cluster.stop()]);
    }
  },
};

interface Store {
  stop(): Promise<void>;
  start(): Promise<void>;
  freeze(): Promise<void>;
  thaw(): Promise<void>;
}

interface Scene extends Pick<ProofRun, "size" | "print"> {
  name: string;
  /** The dependency that `/health/ready` must name. */
  blames: string;
  store: Store;
  postgres: PostgresServer;
  use: { redisUrl?: string; clusterUrls?: string[] };
}

async function suffer(scene: Scene): Promise<void> {
  const { name, blames, store, postgres, use, size, print } = scene;
  const { uri: postgresUri } = await createDatabase(postgres.uri());
  const server = await startServer({ env: storeSettings({ postgresUri, ...use }) });
  assert.equal((await server.health()).code, 200);
  const troubles = [
    { what: "stopped", begin: () => store.stop(), end: () => store.start() },
    { what: "frozen", begin: () => store.freeze(), end: () => store.thaw() },
  ];
  for (const { what, begin, end } of troubles) {
    const outage = await endure({ server, blames, begin, end });
    print(
      `${name} ${what}: 503 (${blames}) after ${outage.noticedMs} ms, slowest answers ` +
        `ready ${outage.slowestReadyMs} ms, live ${outage.slowestLiveMs} ms; ` +
        `back: 200 after ${outage.recoveredMs} ms`,
    );
    const { ready, live } = LIMITS_MS[size];
    assert(outage.slowestReadyMs < ready, "/health/ready kept somebody waiting");
    assert(outage.slowestLiveMs < live, "the process itself was held up");
  }
  await isStillListed(server);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
}

/** One outage, with somebody asking all the time. */
async function endure(outage: Outage) {
  const live = watchLive(outage.server);
  try {
    return { ...(await passThrough(outage)), slowestLiveMs: await live.stop() };
  } finally {
    await live.stop();
  }
}

interface Outage {
  server: RunningServer;
  blames: string;
  begin: () => Promise<void>;
  end: () => Promise<void>;
}

async function passThrough({ server, blames, begin, end }: Outage) {
  const readyMs: number[] = [];
  const health = async () => {
    const answer = await server.health();
    readyMs.push(answer.tookMs);
    return answer;
  };

  await begin();
  const noticed = clockwatch();
  const isBlamed = async () => {
    const { code, status, down } = await health();
    // Another store may be late for a moment as well; this one is to blame each time.
    return code === 503 && status === "not_ready" && down.includes(blames);
  };
  await until(isBlamed, { deadlineMs: NOTICED_LIMIT_MS, what: `503 that names ${blames}` });
  const noticedMs = noticed();
  for (let again = 0; again < 3; again++) assert(await isBlamed(), "once noticed, it stays so");

  await end();
  const recovered = clockwatch();
  const isReady = async () => (await health()).code === 200;
  await until(isReady, { deadlineMs: RECOVERED_LIMIT_MS, what: "200 by itself" });
  return { noticedMs, recoveredMs: recovered(), slowestReadyMs: Math.round(Math.max(...readyMs)) };
}

function watchLive(server: RunningServer): { stop(): Promise<number> } {
  let slowestMs = 0;
  let isOver = false;
  const watching = (async () => {
    while (!isOver) {
      const asked = clockwatch();
      assert.equal((await server.get("/health/live")).status, 200);
      slowestMs = Math.max(slowestMs, asked());
      await wait(50);
    }
  })();
  watching.catch(() => {});
  return {
    async stop() {
      isOver = true;
      await watching;
      return slowestMs;
    },
  };
}

function clockwatch(): () => number {
  const startedMs = performance.now();
  return () => Math.round(performance.now() - startedMs);
}

/** It renews itself again: the outage has not cost it its place. */
async function isStillListed(server: RunningServer): Promise<void> {
  const listed = async () => {
    const { body } = await server.get("/api/v1/cluster");
    return (body as { instances: unknown[] }).instances.length === 1;
  };
  await until(listed, { deadlineMs: RECOVERED_LIMIT_MS, what: "the instance in its own list" });
}

function asOne({ nodes }: RedisCluster): Store {
  const each = async (act: (node: RedisCluster["nodes"][number]) => Promise<void>) => {
    await Promise.all(nodes.map(act));
  };
  return {
    stop: () => each((node) => node.stop()),
    start: () => each((node) => node.start()),
    freeze: () => each((node) => node.freeze()),
    thaw: () => each((node) => node.thaw()),
  };
}
