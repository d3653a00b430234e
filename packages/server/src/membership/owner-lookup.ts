import type { HotStore } from "../store/hot-store.ts";
import { ownerKeys, readOwner } from "./store/owner-store.ts";

/** The receiver of a message: a node, a session, or the instance that reads it. */
export interface Target {
  node_id?: string | undefined;
  session_id?: string | undefined;
}

/** The instance that the target is connected to; undefined while it is connected to none. */
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
