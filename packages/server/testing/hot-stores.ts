import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import type { HotStore } from "../src/store/hot-store.ts";
import { openMemory } from "../src/store/memory.ts";
import { openRedis, type RedisSettings, waitUntilReady } from "../src/store/redis.ts";
import { createManualClock } from "./manual-clock.ts";

/** Every store of hot state we promise to run on. */
export const HOT_STORES = ["memory", "redis", "redis-cluster"] as const;
export type HotStoreKind = (typeof HOT_STORES)[number];

export interface TestHot {
  hot: HotStore;
  /** Moves the time scripts see. Redis' own key expiry keeps real time: it is housekeeping. */
  advance(ms: number): void;
}

export async function openTestHot(kind: HotStoreKind): Promise<TestHot> {
  const clock = createManualClock();
  const advance = (ms: number) => clock.advance(ms);
  const prefix = uniqueKeyPrefix();
  if (kind === "memory") return { hot: openMemory({ prefix, clock }), advance };
  const store = openRedis({ ...redisSettings(kind), prefix, nowMs: () => clock.wallMs() });
  await waitUntilReady(store, 10_000);
  return { hot: store, advance };
}

/** A second client of the same store, as another instance is. It keeps the store's own time. */
export async function openTestPeer(
  kind: "redis" | "redis-cluster",
  prefix: string,
): Promise<HotStore> {
  const store = openRedis({ ...redisSettings(kind), prefix });
  await waitUntilReady(store, 10_000);
  return store;
}

export function redisSettings(
  kind: "redis" | "redis-cluster",
): Pick<RedisSettings, "mode" | "urls"> {
  const { redisUrl, clusterUrls } = stores();
  return kind === "redis"
    ? { mode: "single", urls: [redisUrl] }
    : { mode: "cluster", urls: clusterUrls };
}
