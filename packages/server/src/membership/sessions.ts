import {
  CLOSE_CODES,
  type CloseCode,
  type ServerToSession,
  type SessionView,
  TenureError,
} from "@tenure/protocol";
import { batchWhileBusy } from "../kernel/batch.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { Db } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import { sendAway } from "./go-away.ts";
import { createSessionQuota } from "./session-quota.ts";
import { lastSeenKeys, type Page, readSeen, takeUnseen, touch } from "./store/last-seen-store.ts";
import { nextEpochs } from "./store/node-unit-store.ts";
import { claimOwner, dropOwner, type Owner, ownerKeys, readOwner } from "./store/owner-store.ts";
import { closeSession, openSession, readSession, resumeSession } from "./store/session-store.ts";

/** The way to a connected session. */
export interface SessionLink {
  send(message: ServerToSession): void;
  /** For a message that is JSON already. */
  sendText(message: string): void;
  /** Bytes that were given to the socket and have not left the process. */
  unsentBytes(): number;
  /** Calls back once, when all of them have left. Never after the socket is closed. */
  whenDrained(callback: () => void): void;
  close(code: CloseCode, reason: string): void;
}

export interface SessionConnection {
  readonly sessionId: string;
  readonly tenant: string;
  /** The name of the token it connected with. */
  readonly token?: string | undefined;
  readonly epoch: number;
  readonly resumeToken: string;
  readonly resumed: boolean;
  readonly link: SessionLink;
  /** The socket is gone; the session may come back until it is away for too long. */
  left(): Promise<void>;
  /** The client is done: nothing is kept for it. */
  end(): Promise<void>;
}

export interface SessionRequest {
  tenant: string;
  token?: string | undefined;
  resume?: { sessionId: string; resumeToken: string } | undefined;
}

export interface Sessions {
  /** Throws `UNAUTHENTICATED` for a session that exists and whose token is not shown. */
  join(request: SessionRequest, link: SessionLink): Promise<SessionConnection>;
  connected(): SessionConnection[];
  renew(): Promise<void>;
  /** The hot store may have forgotten them: the next renewal writes all of them. */
  announceAll(): void;
  sendAway(urls: string[]): void;
  /** Newest first. `seen` may be more than `views`: one that was forgotten meanwhile is left out. */
  list(page: Page): Promise<{ views: ListedSession[]; seen: number }>;
}

/** `token`: the name of the token that opened it; an instance of 0.1 records none. */
export interface ListedSession extends SessionView {
  token?: string | undefined;
}

export interface SessionsOptions {
  instanceId: string;
  db: Db;
  hot: HotStore;
  ownerTtlMs: number;
  goneAfterMs: number;
  /** Sessions that one token may have here; 0 = no limit. */
  tokenSessionsMax: number;
  clock: Clock;
  random: Random;
  log: Log;
  /** Its owner is written anew in a store that may have lost it: what came for it meanwhile found nobody. */
  onFoundAgain: (session: SessionConnection) => void;
}

interface Held extends SessionConnection {
  writtenAtMs: number;
  /** The store may have lost its record. */
  isForgotten: boolean;
}

const REPLACED_HERE = "a newer connection of this session took its place";

export function createSessions(options: SessionsOptions): Sessions {
  const { instanceId, db, hot, clock, random, log, ownerTtlMs } = options;
  const held = new Map<string, Held>();
  const nextEpoch = batchWhileBusy<undefined, number>((calls) => nextEpochs(db, calls.length));
  const lastSeen = lastSeenKeys.sessions(hot.prefix);
  const quota = createSessionQuota({
    ...{ max: options.tokenSessionsMax, goneAfterMs: options.goneAfterMs, clock },
  });

  async function join(
    { tenant, token = "", resume }: SessionRequest,
    link: SessionLink,
  ): Promise<SessionConnection> {
    if (!resume) quota.check(token);
    // First: without Postgres there is no epoch, and nothing may be written for a connect that is refused.
    const epoch = await nextEpoch(undefined);
    const [claim, resumed] = await admit({ tenant, token, resume });
    const session = hold({ ...claim, epoch, resumed, link });
    const isOwned = await announce(session);
    if (!isOwned) return session; // closed by `announce`
    const former = held.get(claim.sessionId);
    // Of two that join at once the newer one stays, whichever comes here first.
    if (former && former.epoch > epoch) {
      link.close(CLOSE_CODES.REPLACED, REPLACED_HERE);
      return session;
    }
    held.set(claim.sessionId, session);
    former?.link.close(CLOSE_CODES.REPLACED, REPLACED_HERE);
    return session;
  }

  async function admit({ tenant, token, resume }: SessionRequest & { token: string }) {
    if (resume) {
      const claim = { ...resume, tenant, token };
      const outcome = await resumeSession(hot, claim);
      if (outcome === "resumed") {
        await touch(hot, lastSeen, [claim.sessionId]);
        quota.joined(token, claim.sessionId);
        return [claim, true] as const;
      }
      if (outcome === "refused") {
        throw new TenureError("UNAUTHENTICATED", {
          reason: "this session needs the resume token it was given",
        });
      }
    }
    // Unknown is no crime: a restart of a store in memory forgets every session, and the client goes on.
    const claim = {
      sessionId: random.bytes(16).toString("hex"),
      resumeToken: random.bytes(32).toString("base64url"),
      ...{ tenant, token },
    };
    // Listed before it is written: the record has no expiry, and only a listed session is ever forgotten.
    // Counted before it is written: connects of the same moment must see each other.
    quota.check(token);
    quota.opened(token, claim.sessionId);
    try {
      await touch(hot, lastSeen, [claim.sessionId]);
      await openSession(hot, claim);
    } catch (error) {
      quota.ended(token, claim.sessionId);
      throw error;
    }
    return [claim, false] as const;
  }

  function hold(session: Omit<Held, "writtenAtMs" | "isForgotten" | "left" | "end">): Held {
    const whole: Held = {
      ...session,
      isForgotten: false,
      writtenAtMs: clock.monotonicMs(),
      left: () => leave(whole),
      async end() {
        quota.ended(session.token ?? "", session.sessionId);
        await leave(whole);
        await closeSession(hot, session.sessionId);
      },
    };
    return whole;
  }

  async function leave(session: Held): Promise<void> {
    quota.left(session.token ?? "", session.sessionId);
    if (held.get(session.sessionId) === session) held.delete(session.sessionId);
    await dropOwner(hot, ownerKeys.session(hot.prefix, session.sessionId), ownerOf(session));
    await touch(hot, lastSeen, [session.sessionId]);
  }

  const ownerOf = ({ epoch }: { epoch: number }): Owner => ({ instanceId, epoch });

  /** Whether it is the session's newest connection. An older one is closed. */
  async function announce(session: Held): Promise<boolean> {
    const sentAtMs = clock.monotonicMs();
    const wasForgotten = session.isForgotten;
    if (wasForgotten) await openSession(hot, session);
    session.isForgotten = false;
    const key = ownerKeys.session(hot.prefix, session.sessionId);
    const claim = await claimOwner(hot, { key, owner: ownerOf(session), ttlMs: ownerTtlMs });
    session.writtenAtMs = sentAtMs;
    if (claim.outcome === "owned") {
      if (wasForgotten) options.onFoundAgain(session);
      return true;
    }
    if (held.get(session.sessionId) === session) held.delete(session.sessionId);
    session.link.close(
      CLOSE_CODES.REPLACED,
      "a newer connection of this session is on another instance",
    );
    return false;
  }

  return {
    join,
    connected: () => [...held.values()],
    async renew() {
      quota.prune();
      // Also seen often enough: one that is connected must never look as if it were gone for good.
      const dueBeforeMs = clock.monotonicMs() - Math.min(ownerTtlMs, options.goneAfterMs) / 3;
      const due = [...held.values()].filter((session) => session.writtenAtMs < dueBeforeMs);
      await Promise.all(due.map(announce));
      if (due.length > 0)
        await touch(
          hot,
          lastSeen,
          due.map(({ sessionId }) => sessionId),
        );
      const gone = await takeUnseen(hot, lastSeen, options.goneAfterMs);
      await Promise.all(gone.map((sessionId) => closeSession(hot, sessionId)));
      if (gone.length > 0)
        log.info({ event: "sessions.forgotten", count: gone.length }, "sessions away for too long");
    },
    announceAll() {
      for (const session of held.values()) {
        session.writtenAtMs = Number.NEGATIVE_INFINITY;
        session.isForgotten = true;
      }
    },
    sendAway(urls) {
      for (const { link } of held.values()) sendAway(link, { urls, random });
    },
    async list(page) {
      const seen = await readSeen(hot, lastSeen, page);
      const views = await Promise.all(seen.map(({ member, atMs }) => viewOf(member, atMs)));
      return { views: views.flatMap((view) => view ?? []), seen: seen.length };
    },
  };

  async function viewOf(sessionId: string, atMs: number): Promise<ListedSession | undefined> {
    const [record, owner] = await Promise.all([
      readSession(hot, sessionId),
      readOwner(hot, ownerKeys.session(hot.prefix, sessionId)),
    ]);
    return (
      record && {
        session_id: sessionId,
        tenant: record.tenant,
        token: record.token,
        online: owner !== undefined,
        instance_id: owner?.instanceId ?? null,
        current_turn_id: record.currentTurnId,
        last_seen_at: new Date(atMs).toISOString(),
      }
    );
  }
}
