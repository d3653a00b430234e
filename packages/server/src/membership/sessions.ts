import { CLOSE_CODES, type CloseCode, type ServerToSession } from "@tenure/protocol";
import { batchWhileBusy } from "../kernel/batch.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import { tokenKey } from "../kernel/scope.ts";
import type { Db } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import { sendAway } from "./go-away.ts";
import { createSessionAdmission, type SessionRequest } from "./session-admission.ts";
import { createSessionQuota } from "./session-quota.ts";
import { lastSeenKeys, takeUnseen, touch } from "./store/last-seen-store.ts";
import { nextEpochs } from "./store/node-unit-store.ts";
import { claimOwner, dropOwner, type Owner, ownerKeys } from "./store/owner-store.ts";
import { listSessions, type SessionQuery } from "./store/session-list.ts";
import { closeSession, openSession } from "./store/session-store.ts";

/** Sends to a connected session. */
export interface SessionLink {
  send(message: ServerToSession): void;
  /** Sends a message that is JSON already. */
  sendText(message: string): void;
  /** Bytes that were given to the socket and have not left the process yet. */
  unsentBytes(): number;
  /** Calls back once, when all of them have left. Never after the socket is closed. */
  whenDrained(callback: () => void): void;
  close(code: CloseCode, reason: string): void;
}

export interface SessionConnection {
  readonly sessionId: string;
  readonly tenant: string;
  /** The name of the client's token. */
  readonly token?: string | undefined;
  readonly epoch: number;
  readonly resumeToken: string;
  readonly link: SessionLink;
  /** The socket is closed. The session can be resumed until it was away for too long. */
  left(): Promise<void>;
  /** The client ended the session: its record is deleted. */
  end(): Promise<void>;
}

export interface Sessions {
  /** Throws `UNAUTHENTICATED` for an existing session without its resume token. */
  join(request: SessionRequest, link: SessionLink): Promise<SessionConnection>;
  connected(): SessionConnection[];
  renew(): Promise<void>;
  /** The hot store may have lost the sessions: the next renewal writes all of them. */
  announceAll(): void;
  sendAway(urls: string[]): void;
  /** The sessions that the caller sees, newest first. */
  list(query: SessionQuery): ReturnType<typeof listSessions>;
}

export interface SessionsOptions {
  instanceId: string;
  db: Db;
  hot: HotStore;
  ownerTtlMs: number;
  goneAfterMs: number;
  /** Sessions that one token may have at this instance; 0: no limit. */
  tokenSessionsMax: number;
  clock: Clock;
  random: Random;
  log: Log;
  /** The session's owner was written again after the store may have lost it. Messages sent meanwhile found no owner. */
  onFoundAgain: (session: SessionConnection) => void;
}

/** A session connected to this instance. */
interface LocalSession extends SessionConnection {
  writtenAtMs: number;
  /** The store may have lost the record. */
  isForgotten: boolean;
}

const quotaKey = ({ tenant, token }: Pick<SessionConnection, "tenant" | "token">) =>
  tokenKey({ tenant, name: token });

const REPLACED_HERE = "a newer connection of this session took its place";

export function createSessions(options: SessionsOptions): Sessions {
  const { instanceId, db, hot, clock, random, log, ownerTtlMs } = options;
  const connections = new Map<string, LocalSession>();
  const nextEpoch = batchWhileBusy<undefined, number>((calls) => nextEpochs(db, calls.length));
  const lastSeen = lastSeenKeys.sessions(hot.prefix);
  const quota = createSessionQuota({
    ...{ max: options.tokenSessionsMax, goneAfterMs: options.goneAfterMs, clock },
  });
  const admit = createSessionAdmission({ hot, random, quota, lastSeen });

  async function join(
    { tenant, token = "", resume }: SessionRequest,
    link: SessionLink,
  ): Promise<SessionConnection> {
    if (!resume) quota.check(quotaKey({ tenant, token }));
    // First: without Postgres there is no epoch, and a refused connect must leave nothing behind.
    const epoch = await nextEpoch(undefined);
    const claim = await admit({ tenant, token, resume });
    const session = createConnection({ ...claim, epoch, link });
    const isOwned = await announce(session);
    if (!isOwned) return session; // closed by `announce`
    const former = connections.get(claim.sessionId);
    // When two connections of a session join at once, the one with the newer epoch stays.
    if (former && former.epoch > epoch) {
      link.close(CLOSE_CODES.REPLACED, REPLACED_HERE);
      return session;
    }
    connections.set(claim.sessionId, session);
    former?.link.close(CLOSE_CODES.REPLACED, REPLACED_HERE);
    return session;
  }

  function createConnection(
    session: Omit<LocalSession, "writtenAtMs" | "isForgotten" | "left" | "end">,
  ): LocalSession {
    const whole: LocalSession = {
      ...session,
      isForgotten: false,
      writtenAtMs: clock.monotonicMs(),
      left: () => leave(whole),
      async end() {
        quota.ended(quotaKey(session), session.sessionId);
        await leave(whole);
        await closeSession(hot, session.sessionId);
      },
    };
    return whole;
  }

  async function leave(session: LocalSession): Promise<void> {
    quota.left(quotaKey(session), session.sessionId);
    if (connections.get(session.sessionId) === session) connections.delete(session.sessionId);
    await dropOwner(hot, ownerKeys.session(hot.prefix, session.sessionId), ownerOf(session));
    await touch(hot, lastSeen, [session.sessionId]);
  }

  const ownerOf = ({ epoch }: { epoch: number }): Owner => ({ instanceId, epoch });

  /** Renews the owner. Resolves to whether this is the session's newest connection; an older one is closed. */
  async function announce(session: LocalSession): Promise<boolean> {
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
    if (connections.get(session.sessionId) === session) connections.delete(session.sessionId);
    session.link.close(
      CLOSE_CODES.REPLACED,
      "a newer connection of this session is on another instance",
    );
    return false;
  }

  return {
    join,
    connected: () => [...connections.values()],
    async renew() {
      quota.prune();
      // Often enough for both: a connected session must never count as away.
      const dueBeforeMs = clock.monotonicMs() - Math.min(ownerTtlMs, options.goneAfterMs) / 3;
      const due = [...connections.values()].filter((session) => session.writtenAtMs < dueBeforeMs);
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
        log.info(
          { event: "sessions.forgotten", count: gone.length },
          "deleted sessions that were away for too long",
        );
    },
    announceAll() {
      for (const session of connections.values()) {
        session.writtenAtMs = Number.NEGATIVE_INFINITY;
        session.isForgotten = true;
      }
    },
    sendAway(urls) {
      for (const { link } of connections.values()) sendAway(link, { urls, random });
    },
    list: (query) => listSessions(hot, query),
  };
}
