import {
  type ChangeLog,
  createChangeLog,
} from "../../../packages/server/src/deployments/cache/deployment-cache.ts";
import { type Wake, wakeFor } from "../../../packages/server/src/deployments/cache/wake.ts";
import type { Arbiter } from "./arbiter.ts";
import type { Store } from "./instance.ts";

export interface Copy {
  readonly log: ChangeLog;
  isRead(): boolean;
  /** Resolves when a look that began after this call has ended. */
  refresh(): Promise<void>;
}

/** An instance's copy of the deployments: what changed since the last look, and whom it concerns. */
export function createCopy({
  arbiter,
  store,
  wake,
}: {
  arbiter: Arbiter;
  store: Store;
  wake: (wakes: Wake[]) => void;
}): Copy {
  const log = createChangeLog();
  let mark: number | undefined;
  let reading: Promise<void> = Promise.resolve();

  async function read(): Promise<void> {
    const { rows, removed, mark: next } = await store(() => arbiter.deployments.since(mark ?? 0));
    const wakes: Wake[] = [];
    for (const row of rows) {
      const before = log.get(row.id);
      if (log.put(row)) wakes.push(wakeFor(before, row));
    }
    for (const id of removed) {
      const before = log.get(id);
      if (log.remove(id)) wakes.push(wakeFor(before, undefined));
    }
    mark = next;
    wake(wakes);
  }

  return {
    log,
    isRead: () => mark !== undefined,
    refresh() {
      reading = reading.then(read);
      return reading;
    },
  };
}
