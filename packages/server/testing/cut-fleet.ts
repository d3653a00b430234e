import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { createDatabase } from "@tenure/testing/stores/database";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { onTestFinished } from "vitest";
import type { App } from "../src/app.ts";
import { redisSettings } from "./hot-stores.ts";
import { startTestApp } from "./test-app.ts";

export interface CutFleet {
  instances: { app: App; proxies: FaultProxy[] }[];
  urls: string[];
}

/** Two instances on the same stores, each behind proxies of its own (Postgres, then Redis). They end with the test. */
export async function openCutFleet(env: Record<string, string> = {}): Promise<CutFleet> {
  const database = await createDatabase(stores().postgresAdminUri);
  onTestFinished(() => database.drop());
  const prefix = uniqueKeyPrefix();
  const instances: CutFleet["instances"] = [];
  for (const _ of [1, 2]) {
    const postgres = await openProxy(database.uri);
    const redis = await openProxy(redisSettings("redis").urls[0]!);
    const app = await startTestApp({
      postgresUri: postgres.url,
      hot: "redis",
      prefix,
      env: { ...env, TENURE_SCHEDULER_PHASE2_REDIS_URL: redis.url },
    });
    const proxies = [postgres.proxy, redis.proxy];
    onTestFinished(async () => {
      await Promise.all(proxies.map((proxy) => proxy.heal()));
      await app.stop();
      for (const proxy of proxies) proxy.stop();
    });
    instances.push({ app, proxies });
  }
  return { instances, urls: instances.map(({ app }) => app.url) };
}

async function openProxy(target: string): Promise<{ url: string; proxy: FaultProxy }> {
  const url = new URL(target);
  const proxy = await startProxy({ targetPort: Number(url.port) });
  url.port = String(proxy.port);
  return { url: url.href, proxy };
}
