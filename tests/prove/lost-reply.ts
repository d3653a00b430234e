import assert from "node:assert";
import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { startRedis } from "@tenure/testing/stores/redis";
import { startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { until } from "@tenure/testing/until";
import { Cluster, Redis } from "ioredis";
import { loadRedisStore } from "./built-server.ts";
import type { Proof } from "./proof.ts";

type Client = Redis | Cluster;

export const lostReply: Proof = {
  name: "lost-reply",
  summary: "a Redis command whose reply is lost is not run twice, single and Cluster",
  async run({ print }) {
    const redis = await startRedis();
    const cluster = await startRedisCluster();
    try {
      await prove({ name: "Redis", ports: [redis.port], isCluster: false, print });
      const ports = cluster.nodes.map((node) => node.port);
      await prove({ name: "Redis Cluster", ports, isCluster: true, print });
    } finally {
      await Promise.all([redis.discard(), cluster.stop()]);
    }
  },
};

interface Scene {
  name: string;
  ports: number[];
  isCluster: boolean;
  print: (line: string) => void;
}

/** One write of each kind a client could be tempted to send again. */
const WRITES: Record<string, (client: Client, key: string) => Promise<unknown>> = {
  INCR: (client, key) => client.incr(key),
  XADD: (client, key) => client.xadd(key, "*", "n", "1"),
  EVAL: (client, key) => client.eval("return redis.call('RPUSH', KEYS[1], 'x')", 1, key),
};

async function prove({ name, ports, isCluster, print }: Scene): Promise<void> {
  const { openRedis, waitUntilReady } = await loadRedisStore();
  const proxies = await Promise.all(ports.map((targetPort) => startProxy({ targetPort })));
  const urls = proxies.map(({ port }) => `redis://127.0.0.1:${port}`);
  const natMap = natMapOf(ports, proxies);
  const mode = isCluster ? "cluster" : "single";
  const store = openRedis({ mode, urls, natMap, prefix: "proof", commandTimeoutMs: 1_000 });
  await waitUntilReady(store, 10_000);
  const defaults = isCluster ? new Cluster(urls, { natMap }) : new Redis(urls[0] ?? "");
  defaults.on("error", () => {});
  try {
    for (const write of Object.keys(WRITES)) {
      const ours = await runsAfterLostReply(store.client, write, proxies);
      const theirs = await mostRunsOf(defaults, write, proxies);
      print(`${name}, ${write}: ours ran ${ours} ×, the library's own settings ${theirs} ×`);
      assert.equal(ours, 1, `${write} on ${name} ran ${ours} times`);
      assert(theirs > 1, "with the library's own settings it should run again: nothing is proven");
    }
  } finally {
    await store.close();
    defaults.disconnect();
    for (const proxy of proxies) proxy.stop();
  }
}

let keys = 0;

/** The write reaches Redis and runs; its connection is cut instead of the answer. */
async function runsAfterLostReply(
  client: Client,
  name: string,
  proxies: FaultProxy[],
): Promise<number> {
  const key = `lost-${++keys}`;
  const lost = Promise.race(
    proxies.map((proxy) => proxy.cutAfter((request) => request.includes(key))),
  );
  // Refused or answered: what counts is what Redis has done.
  await WRITES[name]?.(client, key).catch(() => {});
  await lost;
  for (const proxy of proxies) await proxy.heal();
  // What the client has kept, it sends before anything that comes later.
  return until(() => countRuns(client, key), { what: "Redis to answer again" });
}

async function countRuns(client: Client, key: string): Promise<number> {
  const type = await client.type(key);
  if (type === "stream") return client.xlen(key);
  return type === "list" ? client.llen(key) : Number(await client.get(key));
}

/** A Cluster's client sometimes runs out of redirections while it reconnects, and gives up instead. */
async function mostRunsOf(client: Client, name: string, proxies: FaultProxy[]): Promise<number> {
  let most = 0;
  for (let attempt = 0; attempt < 10 && most < 2; attempt++) {
    most = Math.max(most, await runsAfterLostReply(client, name, proxies));
  }
  return most;
}

/** A Cluster names its nodes by address; this is where the proxies stand for them. */
function natMapOf(ports: number[], proxies: FaultProxy[]) {
  return Object.fromEntries(
    ports.map((port, index) => [
      `127.0.0.1:${port}`,
      { host: "127.0.0.1", port: proxies[index]?.port ?? 0 },
    ]),
  );
}
