import type { TestProject } from "vitest/node";
import { sweepOrphans } from "../processes/process-registry.ts";
import { type Programs, ProgramsMissing } from "../programs/programs.ts";
import { startPostgres } from "../stores/postgres.ts";
import { startRedis } from "../stores/redis.ts";
import { startRedisCluster } from "../stores/redis-cluster.ts";
import { prepareTlsRun } from "../tls-run.ts";
import "../stores/stores.ts";

/** One Postgres, one Redis and one Redis Cluster for the whole run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const started = performance.now();
  const tls = await prepareTlsRun();
  if (tls) console.log(`servers of this run speak ${tls}`);
  const running = await startAll().catch(giveUp);
  const { postgres, redis, cluster } = running;
  project.provide("stores", {
    postgresAdminUri: postgres.uri(),
    redisUrl: redis.url,
    clusterUrls: cluster.urls,
  });
  const names = [
    `PostgreSQL ${describe(postgres.programs)}`,
    `Redis ${describe(redis.programs)}`,
    `Redis Cluster of ${cluster.nodes.length} masters`,
  ];
  console.log(`stores: ${names.join(", ")}; ready in ${secondsSince(started)} s`);

  return async () => {
    await Promise.all([postgres.discard(), redis.discard(), cluster.stop()]);
    await sweepOrphans(); // what test files left running: their processes have ended by now
  };
}

async function startAll() {
  await sweepOrphans();
  const [postgres, redis, cluster] = await Promise.all([
    startPostgres(),
    startRedis(),
    startRedisCluster(),
  ]);
  return { postgres, redis, cluster };
}

/** One sentence and no stack: the reader has to install something, not to debug. Never a skip. */
function giveUp(error: unknown): never {
  if (!(error instanceof ProgramsMissing)) throw error;
  console.error(error.message);
  process.exit(1);
}

function describe({ version, origin, directory }: Programs): string {
  return `${version} (${origin}, ${directory})`;
}

function secondsSince(start: number): string {
  return ((performance.now() - start) / 1000).toFixed(1);
}
