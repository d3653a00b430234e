import { randomUUID } from "node:crypto";
import { createNodeConnection, type NodeConnection, type NodeEvents } from "@tenure/sdk";
import { createTestNodeKey, type TestNodeKey } from "@tenure/testing/fleet/node-key";
import { storeSettings } from "@tenure/testing/fleet/running-server";
import { type RunningProcess, startTenure } from "@tenure/testing/processes/process";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { type RedisServer, startRedis, uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { until } from "@tenure/testing/until";
import { Cluster, Redis } from "ioredis";

export const HOT_KINDS = ["redis", "redis-cluster"] as const;
export type HotKind = (typeof HOT_KINDS)[number];

export interface Instance extends RunningProcess {
  readonly url: string;
}

/** Private stores and real instances on them; `stop` ends everything it started. */
export interface TestFleet {
  readonly hot: HotKind | "memory";
  /** Of all Redis keys of the fleet. */
  readonly prefix: string;
  readonly postgres: PostgresServer;
  /** The one server, or the nodes of the cluster. */
  readonly redis: RedisServer[];
  /** Counts members of all sorted sets whose key matches; with `from` only those with a higher score. */
  countMembers(pattern: string, from?: number): Promise<number>;
  startInstance(options?: InstanceOptions): Promise<Instance>;
  stop(): Promise<void>;
}

export interface InstanceOptions {
  env?: Record<string, string>;
  /** A free one by default. */
  port?: number;
  /** Export conditions, such as "tenure-test" for failpoints. */
  conditions?: string[];
}

export interface FleetOptions {
  /** Per master of the cluster. */
  replicas?: 0 | 1;
  /** Settings of every instance. */
  env?: Record<string, string>;
  /** Lines of redis.conf of the cluster's nodes. */
  conf?: Record<string, string>;
}

export async function startFleet(
  hot: HotKind | "memory",
  options: FleetOptions = {},
): Promise<TestFleet> {
  const [postgres, store] = await Promise.all([startPostgres(), startHot(hot, options)]);
  const instances: Instance[] = [];
  const prefix = uniqueKeyPrefix();
  const common = {
    ...storeSettings({ postgresUri: postgres.uri(), ...store.urls }),
    TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: prefix,
    ...options.env,
  };
  return {
    hot,
    prefix,
    postgres,
    redis: store.servers,
    countMembers: (pattern, from) => countMembers(store.masters(), pattern, from),
    async startInstance({ env = {}, port = 0, conditions = [] } = {}) {
      const running = startTenure(["server", "--port", String(port), "--log-level", "error"], {
        env: { ...common, ...env },
        dataDir: true,
        conditions,
      });
      const [, url = ""] = await running.waitForLine(/ready at (\S+)/, 60_000);
      const instance = { ...running, url };
      instances.push(instance);
      return instance;
    },
    async stop() {
      await Promise.all(instances.map((instance) => instance.kill9()));
      await Promise.all([postgres.discard(), store.stop()]);
    },
  };
}

interface Hot {
  urls: { redisUrl?: string; clusterUrls?: string[] };
  servers: RedisServer[];
  masters(): Redis[];
  stop(): Promise<void>;
}

async function startHot(
  hot: HotKind | "memory",
  { replicas = 0, conf = {} }: FleetOptions,
): Promise<Hot> {
  if (hot === "memory") return { urls: {}, servers: [], masters: () => [], stop: async () => {} };
  if (hot === "redis") {
    const redis = await startRedis();
    const client = new Redis(redis.url, { maxRetriesPerRequest: 1 });
    client.on("error", () => {});
    return {
      urls: { redisUrl: redis.url },
      servers: [redis],
      masters: () => [client],
      async stop() {
        client.disconnect();
        await redis.discard();
      },
    };
  }
  const cluster = await startRedisCluster({ replicas, conf });
  const client = new Cluster(cluster.urls);
  client.on("error", () => {});
  return {
    urls: { clusterUrls: cluster.urls },
    servers: cluster.nodes,
    masters: () => client.nodes("master"),
    async stop() {
      client.disconnect();
      await cluster.stop();
    },
  };
}

async function countMembers(
  masters: readonly Redis[],
  pattern: string,
  from: number | "-inf" = "-inf",
): Promise<number> {
  let members = 0;
  for (const client of masters)
    for await (const keys of client.scanStream({ match: pattern, count: 1_000 }))
      for (const key of keys as string[]) members += await client.zcount(key, from, "+inf");
  return members;
}

export interface TestNode {
  readonly key: TestNodeKey;
  readonly connection: NodeConnection;
  /** Every connect, with the epoch it got. */
  readonly epochs: number[];
}

/** A node-unit as the SDK connects it. */
export function startNode(
  urls: readonly string[],
  options: { on?: NodeEvents; bootId?: string; key?: TestNodeKey } = {},
): TestNode {
  const key = options.key ?? createTestNodeKey();
  const epochs: number[] = [];
  const connection = createNodeConnection({
    urls,
    key: { address: key.address, sign: async (bytes) => key.signBytes(bytes) },
    bootId: options.bootId ?? randomUUID(),
    describe: () => ({
      name: `node ${key.address.slice(0, 6)}`,
      version: "0",
      tags: { node_unit: true },
    }),
    on: {
      ...options.on,
      ready(registration) {
        epochs.push(registration.epoch);
        options.on?.ready?.(registration);
      },
    },
  });
  connection.start();
  return { key, connection, epochs };
}

export async function untilReady(nodes: readonly TestNode[], deadlineMs = 30_000): Promise<void> {
  const waiting = () =>
    nodes.filter(({ connection }) => connection.registration === undefined).length;
  await until(() => waiting() === 0, { deadlineMs, what: "every node to be connected" });
}

export interface ListedNode {
  node_id: string;
  online: boolean;
  instance_id: string | null;
  epoch: number;
}

export async function listNodes(url: string): Promise<ListedNode[]> {
  const response = await fetch(`${url}/api/v1/nodes?limit=500`);
  return ((await response.json()) as { items: ListedNode[] }).items;
}
