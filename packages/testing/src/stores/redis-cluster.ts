import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { until } from "../until.ts";
import { type RedisServer, startRedis } from "./redis.ts";
import { askRedis } from "./redis-ask.ts";

export interface RedisCluster {
  readonly urls: string[];
  /** Masters first as created; a failover may have changed the roles since. */
  readonly nodes: RedisServer[];
  /** Ends all nodes at once and removes their data. */
  stop(): Promise<void>;
}

export interface RedisClusterOptions {
  /** Per master. */
  replicas?: 0 | 1;
  conf?: Record<string, string>;
  env?: Record<string, string>;
  /** The port for TLS of each node, with `tls-cluster` and the certificates in `conf`. */
  tlsPorts?: readonly number[];
}

const masters = 3;

/** Ready when every node, asked by itself, says that all slots are served and all nodes known. */
export async function startRedisCluster(options: RedisClusterOptions = {}): Promise<RedisCluster> {
  const { replicas = 0, env = {} } = options;
  const conf = { "cluster-enabled": "yes", ...options.conf };
  const count = masters * (1 + replicas);
  const ports = options.tlsPorts ?? [];
  const nodes = await Promise.all(
    Array.from({ length: count }, (_, index) =>
      startRedis({
        conf: { ...conf, ...(ports[index] && { "tls-port": String(ports[index]) }) },
        env,
      }),
    ),
  );
  await join3Masters(nodes, replicas, ports.length > 0 ? { ports, conf } : undefined);
  await Promise.all(nodes.map((node) => untilReady(node, count)));
  return {
    urls: nodes.map((node) => node.url),
    nodes,
    stop: async () => {
      await Promise.all(nodes.map((node) => node.discard()));
    },
  };
}

async function join3Masters(
  nodes: RedisServer[],
  replicas: number,
  tls: { ports: readonly number[]; conf: Record<string, string> } | undefined,
): Promise<void> {
  const [first] = nodes;
  if (first === undefined) return;
  const addresses = nodes.map((node, index) => `127.0.0.1:${tls?.ports[index] ?? node.port}`);
  const files = tls && [
    ["--tls", "--cert", tls.conf["tls-cert-file"] ?? "", "--key", tls.conf["tls-key-file"] ?? ""],
    ["--cacert", tls.conf["tls-ca-cert-file"] ?? ""],
  ];
  await promisify(execFile)(
    join(first.programs.directory, "redis-cli"),
    [
      ...(files?.flat() ?? []),
      "--cluster",
      "create",
      ...addresses,
      "--cluster-replicas",
      `${replicas}`,
      "--cluster-yes",
    ],
    { env: first.programs.env, timeout: 60_000 },
  );
}

async function untilReady({ port }: RedisServer, count: number): Promise<void> {
  const wanted = ["cluster_state:ok", "cluster_slots_ok:16384", `cluster_known_nodes:${count}`];
  const isReady = async () => {
    const info = (await askRedis(port, "CLUSTER INFO")).split("\r\n");
    const replication = await askRedis(port, "INFO replication");
    return (
      wanted.every((line) => info.includes(line)) &&
      !replication.includes("master_link_status:down")
    );
  };
  await until(isReady, { deadlineMs: 30_000, what: `the cluster node on port ${port}` });
}
