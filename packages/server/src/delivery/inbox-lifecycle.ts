import { randomUUID } from "node:crypto";
import { TenureError } from "@tenure/protocol";
import type { HotStore } from "../store/hot-store.ts";
import {
  closeInbox,
  delistInbox,
  markInbox,
  openPrepared,
  prepareInbox,
  type RegisteredInbox,
} from "./inbox-registry-store.ts";

const OPEN_ATTEMPTS_MAX = 10;

/**
 * Opens an inbox, so that messages can be put into it.
 *
 * **Every open inbox is on the list** `schedulers:all`: the inbox of a dead instance that is not listed is never read.
 * List and inbox are in different slots, so no script sees both; the order of the steps keeps the promise instead.
 * Opening: write a mark beside the inbox, renew the list entry, open if the mark is still there. Closing (`retireInbox`):
 * read the list entry, close if empty (which removes the mark), and delist if the entry is still the one that was read.
 * However the steps of an opening and a closing interleave, either the mark is gone and the opening starts over, or the
 * entry is new and the delisting fails. A process that dies between two steps leaves at worst an empty inbox or a list
 * entry without an inbox, which the next `retireInbox` clears.
 */
export async function openInbox(
  hot: HotStore,
  { instanceId, group }: { instanceId: string; group: string },
): Promise<void> {
  for (let attempt = 1; attempt <= OPEN_ATTEMPTS_MAX; attempt++) {
    const mark = await prepareInbox(hot, { instanceId, group, mark: randomUUID() });
    if (mark === undefined) return;
    await markInbox(hot, { instanceId, mark: randomUUID() });
    if (await openPrepared(hot, { instanceId, group, mark })) return;
  }
  const reason = `the inbox of ${instanceId} was closed ${OPEN_ATTEMPTS_MAX} times while opening it`;
  throw new TenureError("DEPENDENCY_DOWN", { dependency: "redis", reason });
}

/** Closes an empty inbox and takes it off the list. `listed` must have been read before this call. */
export async function retireInbox(hot: HotStore, listed: RegisteredInbox): Promise<boolean> {
  return (await closeInbox(hot, listed.instanceId)) && (await delistInbox(hot, listed));
}
