import type { Config } from "../config.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Telemetry } from "../telemetry.ts";
import type { Delivery, DeliveryOptions } from "./contract.ts";
import { createDelivery } from "./delivery.ts";

export interface AppDeliveryOptions extends Omit<DeliveryOptions, "store" | "settings" | "meter"> {
  config: Config;
  hot: HotStore;
  telemetry: Telemetry;
}

/** Delivery with the settings of the configuration and its metrics. */
export function createAppDelivery({
  config,
  hot,
  telemetry,
  ...options
}: AppDeliveryOptions): Delivery {
  return createDelivery({
    ...options,
    store: hot,
    settings: config.scheduler.phase2,
    meter: {
      count: (event, by = 1) => telemetry.deliveries.inc({ event }, by),
      bury: (reason) => telemetry.dlqMoved.inc({ reason }),
      pending: (messages) => telemetry.inboxPending.set(messages),
    },
  });
}
