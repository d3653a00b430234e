import { startRedis } from "@tenure/testing/stores/redis";
import { startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { until } from "@tenure/testing/until";
import { Redis } from "ioredis";
import { expect, onTestFinished, test } from "vitest";
import { claimOwner } from "../membership/store/owner-store.ts";
import { openRedis, waitUntilReady } from "./redis.ts";

const PASSWORD = "s3cret/+@";

test("a Cluster with a password needs one URL, and takes nodes that are added later", async () => {
  const cluster = await startRedisCluster();
  onTestFinished(() => cluster.stop());
  const admins = cluster.nodes.map(({ port }) => open(port));
  for (const admin of admins) await lock(admin);
  const url = `redis://:${encodeURIComponent(PASSWORD)}@127.0.0.1:${cluster.nodes[0]!.port}`;
  const store = openRedis({ mode: "cluster", urls: [url], prefix: "access" });
  onTestFinished(() => store.close());
  await waitUntilReady(store, 10_000);

  const claim = (key: string) =>
    claimOwner(store, { key, owner: { instanceId: "i", epoch: 1 }, ttlMs: 60_000 });
  const keys = Array.from({ length: 30 }, (_, index) => `access:{${index}}`);
  for (const key of keys) await claim(key);
  await store.ping();

  const slot = await admins[0]!.cluster("KEYSLOT", "access:{new}");
  const added = await startRedis({ conf: { "cluster-enabled": "yes" } });
  onTestFinished(() => added.discard());
  const newcomer = open(added.port);
  await newcomer.cluster("MEET", "127.0.0.1", cluster.nodes[0]!.port);
  const everyNode = [newcomer, ...admins];
  const areMet = async () => {
    const views = await Promise.all(everyNode.map((node) => node.cluster("INFO")));
    return views.every((view) => String(view).includes("cluster_known_nodes:4"));
  };
  await until(areMet, { deadlineMs: 30_000, what: "all nodes to know the new one" });
  await lock(newcomer);
  const id = await newcomer.cluster("MYID");
  // Without the newest epoch a ping of the former owner takes the slot back in between, and then no node serves it.
  await newcomer.cluster("BUMPEPOCH");
  for (const node of everyNode) await node.cluster("SETSLOT", slot, "NODE", String(id));
  await until(() => claim("access:{new}").then(() => true), { what: "a write at the new node" });
  expect(await newcomer.dbsize()).toBe(1);
}, 60_000);

function open(port: number): Redis {
  const admin = new Redis({ port, retryStrategy: null });
  onTestFinished(() => admin.disconnect());
  return admin;
}

/** From now on connections need the password; this one is in already. */
async function lock(admin: Redis): Promise<void> {
  await admin.config("SET", "requirepass", PASSWORD);
}
