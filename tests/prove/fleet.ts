import { randomUUID } from "node:crypto";
import { createNodeConnection, type NodeConnection, type NodeEvents } from "@tenure/sdk";
import { createTestNodeKey, type TestNodeKey } from "@tenure/testing/fleet/node-key";
import { type RunningProcess, startTenure } from "@tenure/testing/processes/process";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { startRedis, uniqueKeyPrefix } from "@tenure/testing/stores/redis";
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
  readonly postgres: PostgresServer;
  /** Which instance the hot state says a node is connected to. */
  ownerOf(address: string): Promise<string | undefined>;
  /** On a free port, or on `port`. */
  startInstance(options?: { env?: Record<string, string>; port?: number }): Promise<Instance>;
  stop(): Promise<void>;
}

export async function startFleet(hot: HotKind | "memory"): Promise<TestFleet> {
  const [postgres, redis] = await Promise.all([startPostgres(), startHot(hot)]);
  const instances: Instance[] = [];
  const prefix = uniqueKeyPrefix();
  const common = {
    TENURE_SERVER_POSTGRES_URI: postgres.uri(),
    TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: prefix,
    ...redis.env,
  };
  return {
    postgres,
    async ownerOf(address) {
      const owner = await redis.get(`${prefix}:nodes:owner:{node:${address}}`);
      return owner?.replace(/:\d+$/, "");
    },
    async startInstance({ env = {}, port = 0 } = {}) {
      const process = startTenure(["server", "--port", String(port), "--log-level", "warn"], {
        env: { ...common, ...env },
        dataDir: true,
      });
      const [, url] = await process.waitForLine(/ready at (\S+)/, 60_000);
      const instance = { ...process, url: url ?? "" };
      instances.push(instance);
      return instance;
    },
    async stop() {
      await Promise.all(instances.map((instance) => instance.kill9()));
      await Promise.all([postgres.discard(), redis.stop()]);
    },
  };
}

interface Hot {
  env: Record<string, string>;
  get(key: string): Promise<string | null>;
  stop(): Promise<void>;
}

async function startHot(hot: HotKind | "memory"): Promise<Hot> {
  if (hot === "memory") return { env: {}, get: async () => null, stop: async () => {} };
  const enabled = { TENURE_SCHEDULER_PHASE2_ENABLED: "true" };
  if (hot === "redis") {
    const redis = await startRedis();
    const client = new Redis(redis.url);
    return {
      env: { ...enabled, TENURE_SCHEDULER_PHASE2_REDIS_URL: redis.url },
      get: (key) => client.get(key),
      async stop() {
        client.disconnect();
        await redis.discard();
      },
    };
  }
  const cluster = await startRedisCluster();
  const client = new Cluster(cluster.urls);
  return {
    env: {
      ...enabled,
      TENURE_SCHEDULER_PHASE2_REDIS_MODE: "cluster",
      TENURE_SCHEDULER_PHASE2_REDIS_CLUSTER_URLS: cluster.urls.join(","),
    },
    get: (key) => client.get(key),
    async stop() {
      client.disconnect();
      await cluster.stop();
    },
  };
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
