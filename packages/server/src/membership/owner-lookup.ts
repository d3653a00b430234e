import type { HotStore } from "../store/hot-store.ts";
import { ownerKeys, readOwner } from "./store/owner-store.ts";

/** Whom a message is for: a connection, or whoever reads it. */
export interface Target {
  node_id?: string | undefined;
  session_id?: string | undefined;
}

/** Which instance the target is connected to now. `undefined`: to none, though it may come back to one. */
export async function instanceOf(
  hot: HotStore,
  target: Target,
  self: string,
): Promise<string | undefined> {
  const { node_id, session_id } = target;
  if (node_id !== undefined)
    return (await readOwner(hot, ownerKeys.node(hot.prefix, node_id)))?.instanceId;
  if (session_id === undefined) return self;
  return (await readOwner(hot, ownerKeys.session(hot.prefix, session_id)))?.instanceId;
}
