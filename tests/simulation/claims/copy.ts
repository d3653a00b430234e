import {
  createDeploymentCache,
  type DeploymentCache,
} from "../../../packages/server/src/deployments/cache/deployment-cache.ts";
import { type Wake, wakeFor } from "../../../packages/server/src/deployments/cache/wake.ts";
import type { Arbiter } from "./arbiter.ts";
import type { Store } from "./instance.ts";

export interface Copy {
  readonly cache: DeploymentCache;
  isRead(): boolean;
  /** Resolves when a read that began after this call has ended. */
  refresh(): Promise<void>;
}

/** An instance's cache of the deployments: the changes since the last read, and the nodes they concern. */
export function createCopy({
  arbiter,
  store,
  wake,
}: {
  arbiter: Arbiter;
  store: Store;
  wake: (wakes: Wake[]) => void;
}): Copy {
  const cache = createDeploymentCache();
  let mark: number | undefined;
  let reading: Promise<void> = Promise.resolve();

  async function read(): Promise<void> {
    const { rows, removed, mark: next } = await store(() => arbiter.deployments.since(mark ?? 0));
    const wakes: Wake[] = [];
    for (const row of rows) {
      const before = cache.get(row.id);
      if (cache.put(row)) wakes.push(wakeFor(before, row));
    }
    for (const id of removed) {
      const before = cache.get(id);
      if (cache.remove(id)) wakes.push(wakeFor(before, undefined));
    }
    mark = next;
    wake(wakes);
  }

  return {
    cache,
    isRead: () => mark !== undefined,
    refresh() {
      reading = reading.then(read);
      return reading;
    },
  };
}
