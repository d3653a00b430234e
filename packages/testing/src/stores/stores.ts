import { inject } from "vitest";

/** The stores that global-setup.ts started for this run. Use them under a name of your own. */
export interface Stores {
  postgresAdminUri: string;
  redisUrl: string;
  clusterUrls: string[];
}

declare module "vitest" {
  export interface ProvidedContext {
    stores: Stores;
  }
}

export function stores(): Stores {
  return inject("stores");
}
