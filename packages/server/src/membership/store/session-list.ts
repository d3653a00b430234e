import type { SessionView } from "@tenure/protocol";
import type { HotStore } from "../../store/hot-store.ts";
import { lastSeenKeys, readSeen, type Seen } from "./last-seen-store.ts";
import { ownerKeys, readOwner } from "./owner-store.ts";
import { readSession, type SessionRecord } from "./session-store.ts";

/** `token` is the name of the token that opened it; an instance of 0.1 stores none. */
export interface ListedSession extends SessionView {
  token?: string | undefined;
}

/**
 * Behind one session in the list: when that was seen, and the first letters of its id. Neither a session's whole id nor its
 * number in the list, because it may be a session that the caller does not see.
 */
export interface ListPosition {
  atMs: number;
  idStart: string;
}

export interface SessionQuery {
  limit: number;
  after?: ListPosition | undefined;
  /** Whether the caller sees sessions of this tenant and token. */
  isSeen(session: Pick<SessionRecord, "tenant" | "token">): boolean;
  online?: boolean | undefined;
}

export const ID_START_LENGTH = 8;
/** Sessions read at once when a page is not full yet. */
const CHUNK = 500;
/** Sessions read for one page. Beyond that a page may have fewer than it could. */
const READ_MAX = 1_000;

/** The sessions that a caller sees, newest first. Without `next` there are no more. */
export async function listSessions(
  hot: HotStore,
  { limit, after, isSeen, online }: SessionQuery,
): Promise<{ views: ListedSession[]; next?: ListPosition | undefined }> {
  const views: ListedSession[] = [];
  let last: Seen | undefined;
  // One more shows whether there is a next page; the session before this page is read again.
  let size = limit + (after ? 2 : 1);
  for (let offset = 0; ; ) {
    const page = { offset, limit: size, max: after?.atMs };
    const seen = await readSeen(hot, lastSeenKeys.sessions(hot.prefix), page);
    const found = await Promise.all(
      seen.map((one) => (isBehind(after, one) ? readView(hot, one, isSeen) : undefined)),
    );
    for (const [at, view] of found.entries()) {
      if (!view || (online !== undefined && view.online !== online)) continue;
      if (views.length === limit) return { views, next: last && positionOf(last) };
      views.push(view);
      last = seen[at];
    }
    offset += seen.length;
    if (seen.length < size) return { views };
    if (offset >= READ_MAX) return { views, next: positionOf(seen.at(-1)!) };
    size = CHUNK;
  }
}

/** `undefined` for a session that the caller does not see, or that was deleted meanwhile. */
async function readView(
  hot: HotStore,
  { member: sessionId, atMs }: Seen,
  isSeen: SessionQuery["isSeen"],
): Promise<ListedSession | undefined> {
  const record = await readSession(hot, sessionId);
  if (!record || !isSeen(record)) return undefined;
  const owner = await readOwner(hot, ownerKeys.session(hot.prefix, sessionId));
  return {
    session_id: sessionId,
    tenant: record.tenant,
    token: record.token,
    online: owner !== undefined,
    instance_id: owner?.instanceId ?? null,
    current_turn_id: record.currentTurnId,
    last_seen_at: new Date(atMs).toISOString(),
  };
}

const positionOf = ({ member, atMs }: Seen): ListPosition => ({
  atMs,
  idStart: member.slice(0, ID_START_LENGTH),
});

/** Sessions that were seen at the same time are listed by their ids, from the last to the first. */
function isBehind(after: ListPosition | undefined, { member, atMs }: Seen): boolean {
  if (!after || atMs < after.atMs) return true;
  return atMs === after.atMs && member.slice(0, ID_START_LENGTH) < after.idStart;
}
