import { randomUUID } from "node:crypto";
import { TenureError } from "@tenure/protocol";
import type { HotStore } from "../store/hot-store.ts";
import {
  closeInbox,
  delistInstance,
  type Listed,
  markInstance,
  openPrepared,
  prepareInbox,
} from "./inbox-registry-store.ts";

const OPEN_ATTEMPTS_MAX = 10;

/**
 * Opens an inbox, so that messages can be put into it.
 *
 * **Every inbox that takes messages is on the list** `schedulers:all`: one that is not would be read by nobody
 * once its instance is gone. List and inbox are different slots, so no script sees both; the order of the
 * steps gives the promise instead. Opening: leave a mark at the inbox, renew the list entry, open if the mark
 * is still there. Closing (`retire`): read the list entry, close if empty (which takes every mark away), and
 * delist if the entry is still the one that was read. Whichever way the steps of two interleave, either the
 * mark is gone and the opening begins again, or the entry is new and the delisting fails. A process that dies
 * between two steps leaves at worst an empty inbox or an empty entry, which the next `retire` clears.
 */
export async function openInbox(
  hot: HotStore,
  { instanceId, group }: { instanceId: string; group: string },
): Promise<void> {
  for (let attempt = 1; attempt <= OPEN_ATTEMPTS_MAX; attempt++) {
    const mark = await prepareInbox(hot, { instanceId, group, mark: randomUUID() });
    if (mark === undefined) return;
    await markInstance(hot, { instanceId, mark: randomUUID() });
    if (await openPrepared(hot, { instanceId, group, mark })) return;
  }
  const reason = `the inbox of ${instanceId} was closed ${OPEN_ATTEMPTS_MAX} times while opening it`;
  throw new TenureError("DEPENDENCY_DOWN", { dependency: "redis", reason });
}

/** Takes an instance off the list, if nothing is left of it. `listed` must have been read before this call. */
export async function retire(hot: HotStore, listed: Listed): Promise<boolean> {
  return (await closeInbox(hot, listed.instanceId)) && (await delistInstance(hot, listed));
}
