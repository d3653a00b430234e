import type { Config } from "./config.ts";
import { type Clock, systemClock } from "./kernel/clock.ts";
import type { Log } from "./kernel/log.ts";
import { type Random, systemRandom, uuid7 } from "./kernel/random.ts";
import { liveInstances } from "./membership/store/instance-store.ts";
import { openStores } from "./store/open.ts";
import { createTelemetry } from "./telemetry.ts";

export interface CoreOptions {
  config: Config;
  log: Log;
  clock?: Clock;
  random?: Random;
}

export type Core = Awaited<ReturnType<typeof openCore>>;

const HEARTBEAT_INTERVAL_MS = 5_000;

/** What every part may need: the identity of this process, its settings, and its stores, opened and migrated. */
export async function openCore({
  config,
  log,
  clock = systemClock,
  random = systemRandom,
}: CoreOptions) {
  const telemetry = createTelemetry();
  const { instance_id } = config.scheduler.phase2;
  const instanceId = instance_id === "auto" ? `i-${random.bytes(6).toString("hex")}` : instance_id;
  const bootId = uuid7(random, clock.wallMs());
  const stores = await openStores({ config, clock, log, telemetry });
  return {
    ...{ config, log, clock, random, telemetry, instanceId, bootId, stores, ...stores },
    heartbeatIntervalMs: HEARTBEAT_INTERVAL_MS,
    instances: () => liveInstances(stores.db),
  };
}
