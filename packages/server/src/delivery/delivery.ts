import type { HotStore } from "../store/hot-store.ts";
import type { RedisStore } from "../store/redis.ts";
import type { Delivery, DeliveryOptions, Meter } from "./contract.ts";
import { createLocalDelivery } from "./local-delivery.ts";
import { createRedisDelivery } from "./redis-delivery.ts";

/**
 * How a message reaches the instance that can act on it. A message that was accepted takes effect, or is
 * superseded, or is in the dead letters; one that was not accepted was refused to its sender (I7).
 */
export function createDelivery(options: DeliveryOptions): Delivery {
  const { store, meter = UNMETERED } = options;
  return isRedis(store)
    ? createRedisDelivery({ ...options, store, meter })
    : createLocalDelivery({ ...options, meter });
}

const UNMETERED: Meter = { count() {}, bury() {}, pending() {} };

const isRedis = (store: HotStore): store is RedisStore => store.kind !== "memory";
