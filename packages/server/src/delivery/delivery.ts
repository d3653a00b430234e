import type { HotStore } from "../store/hot-store.ts";
import type { RedisStore } from "../store/redis.ts";
import type { Delivery, DeliveryOptions } from "./contract.ts";
import { createNoDelivery } from "./no-delivery.ts";
import { createRedisDelivery } from "./redis-delivery.ts";

/**
 * Delivers messages to the instance that can act on them. An accepted message takes effect, is superseded, or becomes a
 * dead letter; a message that was not accepted was refused to its sender (I7).
 */
export function createDelivery(options: DeliveryOptions): Delivery {
  const { store } = options;
  return isRedis(store)
    ? createRedisDelivery({ ...options, store })
    : createNoDelivery(options.clock);
}

const isRedis = (store: HotStore): store is RedisStore => store.kind !== "memory";
