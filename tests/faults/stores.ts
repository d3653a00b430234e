import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { type RedisServer, startRedis } from "@tenure/testing/stores/redis";
import { type RedisCluster, startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { createSmallDisk, type SmallDisk } from "@tenure/testing/stores/small-disk";

export type HotKind = "redis" | "redis-cluster";

/** Redis as the suite sees it, whether one server or a cluster. */
export interface Hot {
  nodes: RedisServer[];
  stop(): Promise<void>;
}

/** The private stores of a run. */
export interface Stores {
  readonly postgres: PostgresServer;
  readonly hot: Hot;
  /** Where this machine has the means. */
  readonly postgresDisk: SmallDisk | undefined;
  stop(): Promise<void>;
}

export interface StoresEnv {
  postgresEnv: Record<string, string>;
  redisEnv?: Record<string, string> | undefined;
}

// Far more than a run writes: only the nemesis fills it.
const POSTGRES_MB = 1_024;
const POSTGRES_LOG_MB = 256;

export async function startStores(
  kind: HotKind,
  { postgresEnv, redisEnv = {} }: StoresEnv,
): Promise<Stores> {
  const postgresDisk = createSmallDisk(scratchDirectory("disk"), POSTGRES_MB);
  const [postgres, hot] = await Promise.all([
    startPostgres({
      env: postgresEnv,
      settings: { max_wal_size: `${POSTGRES_LOG_MB}MB` },
      directory: postgresDisk && directoryOn(postgresDisk),
    }),
    startHot(kind, redisEnv),
  ]);
  return {
    postgres,
    hot,
    postgresDisk,
    async stop() {
      await Promise.all([postgres.discard(), hot.stop()]);
      postgresDisk?.discard();
    },
  };
}

/** Not its root, which nobody can remove. */
function directoryOn({ directory }: SmallDisk): string {
  const own = join(directory, "files");
  mkdirSync(own);
  return own;
}

/** By its default, once a second, a crash may lose what was acknowledged; then a job that has ended may run again. */
const KEEPS_WHAT_IT_SAID = { appendfsync: "always" };

async function startHot(kind: HotKind, env: Record<string, string>): Promise<Hot> {
  if (kind === "redis") {
    const redis = await startRedis({ conf: KEEPS_WHAT_IT_SAID, env });
    return { nodes: [redis], stop: () => redis.discard() };
  }
  const cluster: RedisCluster = await startRedisCluster({
    replicas: 1,
    env,
    // Longer than any fault of ours: a failover by time-out may lose what was acknowledged, and that is Redis's
    // own promise, not ours. The nemesis asks for failovers in good order.
    conf: { ...KEEPS_WHAT_IT_SAID, "cluster-node-timeout": "6000" },
  });
  return { nodes: cluster.nodes, stop: () => cluster.stop() };
}
