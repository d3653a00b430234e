import { scratchDirectory } from "@tenure/testing/scratch";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { type App, startApp } from "../src/app.ts";
import { readConfig } from "../src/config.ts";
import { type Clock, systemClock } from "../src/kernel/clock.ts";
import { silentLog } from "../src/kernel/log.ts";
import type { HotStoreKind } from "./hot-stores.ts";
import { redisSettings } from "./hot-stores.ts";

export interface TestAppOptions {
  postgresUri: string;
  hot?: HotStoreKind;
  /** Instances that belong together share it. */
  prefix?: string;
  env?: Record<string, string>;
  /** What its settings file says, for what the environment cannot. */
  toml?: string;
  clock?: Clock;
}

/** An instance in this process, on a port of its own, with settings short enough for tests. */
export async function startTestApp({
  postgresUri,
  hot = "memory",
  prefix = uniqueKeyPrefix(),
  env = {},
  toml,
  clock = systemClock,
}: TestAppOptions): Promise<App> {
  const config = readConfig({
    file: toml === undefined ? undefined : { path: "tenure.toml", text: toml },
    env: {
      TENURE_SERVER_PORT: "0",
      TENURE_SERVER_DATA_DIR: scratchDirectory("app"),
      TENURE_SERVER_POSTGRES_URI: postgresUri,
      TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_REFRESH_INTERVAL_MS: "200",
      TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: prefix,
      ...(hot !== "memory" && phase2Env(hot)),
      ...env,
    },
  });
  return startApp({ config, clock, log: silentLog, onFatal: () => {} });
}

function phase2Env(kind: "redis" | "redis-cluster"): Record<string, string> {
  const { mode, urls } = redisSettings(kind);
  return {
    TENURE_SCHEDULER_PHASE2_ENABLED: "true",
    TENURE_SCHEDULER_PHASE2_REDIS_MODE: mode,
    ...(mode === "single"
      ? { TENURE_SCHEDULER_PHASE2_REDIS_URL: urls[0]! }
      : { TENURE_SCHEDULER_PHASE2_REDIS_CLUSTER_URLS: urls.join(",") }),
  };
}
