import { startProxy } from "@tenure/testing/processes/proxy";
import type { PostgresServer } from "@tenure/testing/stores/postgres";
import type { LineName, Lines } from "./actor.ts";
import type { Hot } from "./stores.ts";

/** What a way may lead to. */
export interface Ends {
  postgres: PostgresServer;
  hot: Hot;
  /** Of the instances. */
  places: readonly Place[];
}

/** Where a process listens. */
export interface Place {
  host: string;
  port: number;
}

/** A Cluster names its nodes by address, so nobody can stand between: its nodes are disturbed themselves. */
export async function linesTo(
  { postgres, hot, places }: Omit<Ends, "postgres"> & { postgres: Pick<PostgresServer, "port"> },
  uses: readonly LineName[] = ["postgres", "redis"],
  /** Our address on a link to the host they are for; loopback if not given. */
  listenAt?: string,
): Promise<Lines> {
  const to = (targets: readonly Place[]) =>
    Promise.all(
      targets.map(({ host, port }) =>
        startProxy({ targetPort: port, targetHost: host, host: listenAt }),
      ),
    );
  const here = ({ port }: { port: number }) => ({ host: "127.0.0.1", port });
  return {
    ...(uses.includes("postgres") && { postgres: await to([here(postgres)]) }),
    ...(uses.includes("hosts") && { hosts: await to(places) }),
    ...(uses.includes("redis") &&
      hot.nodes.length === 1 && { redis: await to(hot.nodes.map(here)) }),
  };
}

export function through(postgres: PostgresServer, { postgres: [proxy] = [] }: Lines): string {
  const uri = new URL(postgres.uri());
  if (proxy) uri.host = `${proxy.host}:${proxy.port}`;
  return uri.href;
}

export const redisUrls = (hot: Hot, { redis }: Lines): string[] =>
  redis?.map(({ host, port }) => `redis://${host}:${port}`) ?? hot.nodes.map(({ url }) => url);

export function redisEnv(hot: Hot, lines: Lines): Record<string, string> {
  const urls = redisUrls(hot, lines);
  if (lines.redis) return { TENURE_SCHEDULER_PHASE2_REDIS_URL: urls[0] ?? "" };
  return {
    TENURE_SCHEDULER_PHASE2_REDIS_MODE: "cluster",
    TENURE_SCHEDULER_PHASE2_REDIS_CLUSTER_URLS: urls.join(","),
  };
}
