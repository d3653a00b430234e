import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { repositoryRoot } from "@tenure/testing/repository";
import type * as redisModule from "../../packages/server/dist/store/redis.js";

// Proofs use the server as it is shipped: its build, not its sources.
const built = (file: string): string => join(repositoryRoot, "packages/server/dist", file);

/** For programs that open the embedded store in a process of their own. */
export const embeddedStoreFile = built("store/embedded/pglite.js");

export function loadRedisStore(): Promise<typeof redisModule> {
  return import(/* @vite-ignore */ pathToFileURL(built("store/redis.js")).href);
}
