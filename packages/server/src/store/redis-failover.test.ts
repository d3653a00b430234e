import { setTimeout as wait } from "node:timers/promises";
import { TenureError } from "@tenure/protocol";
import type { RedisServer } from "@tenure/testing/stores/redis";
import { askRedis } from "@tenure/testing/stores/redis-ask";
import { startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { until } from "@tenure/testing/until";
import { expect, onTestFinished, test } from "vitest";
import { claimOwner } from "../membership/store/owner-store.ts";
import { openRedis, waitUntilReady } from "./redis.ts";

const CALLERS = 40;

test("a failover of a Cluster is DEPENDENCY_DOWN for a moment, and never a bug of a script", async () => {
  const cluster = await startRedisCluster({ replicas: 1 });
  onTestFinished(() => cluster.stop());
  const store = openRedis({ mode: "cluster", urls: cluster.urls, prefix: "failover" });
  onTestFinished(() => store.close());
  await waitUntilReady(store, 30_000);
  const failures: unknown[] = [];
  let succeeded = 0;
  let stopped = false;

  /** Over many slots at once, so that one pipeline meets moved keys and others. */
  async function call(caller: number): Promise<void> {
    for (let epoch = 1; !stopped; epoch++) {
      const key = `failover:{${caller}-${epoch % 20}}`;
      const owner = { instanceId: "i", epoch };
      await claimOwner(store, { key, owner, ttlMs: 60_000 }).then(
        () => succeeded++,
        (error) => failures.push(error),
      );
      await wait(2);
    }
  }

  const callers = Array.from({ length: CALLERS }, (_, caller) => call(caller));
  await until(() => succeeded > CALLERS, { deadlineMs: 30_000, what: "first answers" });
  const isMaster = async ({ port }: RedisServer) =>
    (await askRedis(port, "ROLE")).includes("master");
  /** A failover that is not over within 5 s is given up, and of two elections at once one may fail. */
  async function becomeMaster(replica: RedisServer): Promise<void> {
    await askRedis(replica.port, "CLUSTER FAILOVER");
    await until(() => isMaster(replica), { deadlineMs: 6_000, what: "the replica to be master" });
  }
  const isOver = async () => {
    const done = await Promise.allSettled(
      cluster.nodes.slice(3).map(async (node) => (await isMaster(node)) || becomeMaster(node)),
    );
    return done.every(({ status }) => status === "fulfilled");
  };
  await until(isOver, { deadlineMs: 150_000, what: "the replicas to be masters" });
  const before = succeeded;
  await until(() => succeeded > before + CALLERS, { deadlineMs: 60_000, what: "answers again" });
  stopped = true;
  await Promise.all(callers);

  const codes = new Set(
    failures.map((error) => (error instanceof TenureError ? error.code : String(error))),
  );
  expect([...codes].filter((code) => code !== "DEPENDENCY_DOWN")).toEqual([]);
}, 300_000);
