import type { PostgresServer } from "../support/postgres.ts";
import { startProxy } from "../support/proxy.ts";
import type { LineName, Lines } from "./actor.ts";
import type { Hot } from "./stores.ts";

/** What a way may lead to. */
export interface Ends {
  postgres: PostgresServer;
  hot: Hot;
  /** Of the instances. */
  ports: readonly number[];
}

/** A Cluster names its nodes by address, so nobody can stand between: its nodes are disturbed themselves. */
export async function linesTo(
  { postgres, hot, ports }: Ends,
  uses: readonly LineName[] = ["postgres", "redis"],
): Promise<Lines> {
  const to = (targets: readonly number[]) =>
    Promise.all(targets.map((targetPort) => startProxy({ targetPort })));
  return {
    ...(uses.includes("postgres") && { postgres: await to([postgres.port]) }),
    ...(uses.includes("hosts") && { hosts: await to(ports) }),
    ...(uses.includes("redis") &&
      hot.nodes.length === 1 && { redis: await to(hot.nodes.map(({ port }) => port)) }),
  };
}

export function through(postgres: PostgresServer, { postgres: [proxy] = [] }: Lines): string {
  const uri = new URL(postgres.uri());
  if (proxy) uri.port = String(proxy.port);
  return uri.href;
}

export const redisUrls = (hot: Hot, { redis }: Lines): string[] =>
  redis?.map(({ port }) => `redis://127.0.0.1:${port}`) ?? hot.nodes.map(({ url }) => url);

export function redisEnv(hot: Hot, lines: Lines): Record<string, string> {
  const urls = redisUrls(hot, lines);
  if (lines.redis) return { TENURE_SCHEDULER_PHASE2_REDIS_URL: urls[0] ?? "" };
  return {
    TENURE_SCHEDULER_PHASE2_REDIS_MODE: "cluster",
    TENURE_SCHEDULER_PHASE2_REDIS_CLUSTER_URLS: urls.join(","),
  };
}
