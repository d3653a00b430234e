import type { Config } from "../config.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Delivery, DeliveryOptions } from "./contract.ts";
import { createDelivery } from "./delivery.ts";

export interface AppDeliveryOptions extends Omit<DeliveryOptions, "store" | "settings"> {
  config: Config;
  hot: HotStore;
}

/** Delivery with the settings of the configuration. */
export const createAppDelivery = ({ config, hot, ...options }: AppDeliveryOptions): Delivery =>
  createDelivery({ ...options, store: hot, settings: config.scheduler.phase2 });
