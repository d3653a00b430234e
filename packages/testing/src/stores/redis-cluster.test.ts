import { Cluster } from "ioredis";
import { describe, expect, test } from "vitest";
import { uniqueKeyPrefix } from "./redis.ts";
import { askRedis } from "./redis-ask.ts";
import { startRedisCluster } from "./redis-cluster.ts";
import { stores } from "./stores.ts";

describe("a private Redis Cluster", () => {
  test("a cluster answers on all three masters", async () => {
    const cluster = new Cluster(stores().clusterUrls);
    const prefix = uniqueKeyPrefix();
    const keys = Array.from({ length: 60 }, (_, index) => `${prefix}:${index}`);
    await Promise.all(keys.map((key) => cluster.set(key, "here")));

    const masters = cluster.nodes("master");
    const found = await Promise.all(masters.map((master) => master.keys(`${prefix}:*`)));

    expect(found).toHaveLength(3);
    expect(found.every((keysThere) => keysThere.length > 0)).toBe(true);
    expect(found.flat().sort()).toEqual(keys.sort());
    await cluster.quit();
  });

  test("a cluster can have a replica per master", async () => {
    const { nodes, urls, stop } = await startRedisCluster({ replicas: 1 });
    const roles = await Promise.all(nodes.map((node) => askRedis(node.port, "INFO replication")));
    expect(urls).toHaveLength(6);
    expect(roles.filter((role) => role.includes("role:master"))).toHaveLength(3);
    expect(roles.filter((role) => role.includes("master_link_status:up"))).toHaveLength(3);
    await stop();
  });
});
