import { isTenureError } from "@tenure/protocol";
import { type Act, recorded } from "../audit/actor.ts";
import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Random } from "../kernel/random.ts";
import type { Db } from "../store/db.ts";
import type { TokenRef } from "./authenticator.ts";
import {
  deleteSession,
  type FoundSession,
  findSession,
  forgetEndedSessions,
  insertSession,
  readSessionKey,
  touchSession,
} from "./console-session-store.ts";
import { looksLikeSessionId, newSessionId, sessionIdSha256, wasMadeWith } from "./session-id.ts";

export interface ConsoleSessionsOptions {
  db: Db;
  clock: Clock;
  random: Random;
  /** How long a session lasts: at most, and without a request. */
  settings: Pick<
    Config["auth"],
    "console_session_seconds" | "console_idle_seconds" | "offline_max_seconds"
  >;
}

export interface ConsoleSessions {
  readonly ageMaxSeconds: number;
  /** Starts a session and returns its id. The id itself is not stored. */
  open(token: TokenRef, act?: Act): Promise<string>;
  /**
   * The token of the first of these ids that is a live session. Without Postgres a session that this instance knows stays
   * valid for `offline_max_seconds`; for any other it rejects with `DEPENDENCY_DOWN`.
   */
  find(ids: readonly string[]): Promise<TokenRef | undefined>;
  end(ids: readonly string[]): Promise<void>;
  /** Deletes the rows of sessions that are over. */
  forgetEnded(): Promise<void>;
}

/** How long a row of Postgres is cached: a sign-out at another instance takes effect within this time. */
const CACHE_MS = 5_000;
const CACHED_MAX = 10_000;
/** How long a Postgres that does not answer is not asked again about a session that is known. */
const OFFLINE_CACHE_MS = 1_000;
/** How long a request of a session that is known waits for Postgres. */
const ANSWER_LIMIT_MS = 1_000;
/** How often the use of a session is stored. */
const TOUCH_MS = 60_000;

interface Cached {
  /** `undefined`: the session is over. */
  token: TokenRef | undefined;
  untilMs: number;
  /** Without Postgres: until then, and not beyond the end of the session. */
  offlineUntilMs: number;
  /** The last request here. */
  usedMs: number;
}

/** Sessions of the console: a random id in the browser; its SHA-256, and the name and hash of the token, in Postgres. */
export function createConsoleSessions(options: ConsoleSessionsOptions): ConsoleSessions {
  const { db, clock, settings } = options;
  const { console_session_seconds: ageMaxSeconds, console_idle_seconds: idleSeconds } = settings;
  const cache = new Map<string, Cached>();
  const reading = new Map<string, Promise<TokenRef | undefined>>();
  const touchMs = Math.min(TOUCH_MS, idleSeconds * 250);
  let key: string | undefined;

  async function sessionKey(): Promise<string> {
    key ??= await readSessionKey(db);
    return key;
  }

  function remember(hash: string, token: TokenRef | undefined, restMs = 0): void {
    const nowMs = clock.monotonicMs();
    const offlineUntilMs = nowMs + Math.min(restMs, settings.offline_max_seconds * 1_000);
    cache.delete(hash);
    cache.set(hash, { token, untilMs: nowMs + CACHE_MS, offlineUntilMs, usedMs: nowMs });
    if (cache.size > CACHED_MAX) cache.delete(cache.keys().next().value!);
  }

  async function read(hash: string): Promise<FoundSession | undefined> {
    const found = await findSession(db, hash, idleSeconds);
    // A Postgres that takes no writes can still be read: the sessions stay valid.
    if (found && found.unseen_ms >= touchMs) await touchSession(db, hash).catch(() => {});
    return found;
  }

  /** The session as it was last read, for as long as that holds without Postgres. */
  function knownOffline(hash: string): TokenRef | undefined {
    const [cached, nowMs] = [cache.get(hash), clock.monotonicMs()];
    if (!cached?.token || nowMs >= cached.offlineUntilMs) return undefined;
    if (nowMs - cached.usedMs >= idleSeconds * 1_000) return undefined;
    cached.usedMs = nowMs;
    cached.untilMs = nowMs + OFFLINE_CACHE_MS;
    return cached.token;
  }

  /** Reads the session; one that is known does not wait for a Postgres that does not answer. */
  async function readOrKnown(hash: string): Promise<TokenRef | undefined> {
    const limit = new AbortController();
    const late = clock
      .sleep(ANSWER_LIMIT_MS, limit.signal)
      .then(() => (limit.signal.aborted ? undefined : knownOffline(hash)));
    const read = readOnce(hash);
    read.catch(() => {}); // It may fail after the memory has answered.
    try {
      return await Promise.race([read, late.then((token) => token ?? read)]);
    } catch (error) {
      const token = isTenureError(error, "DEPENDENCY_DOWN") ? knownOffline(hash) : undefined;
      if (token) return token;
      throw error;
    } finally {
      limit.abort();
    }
  }

  /** Single-flight: the requests of one page arrive together and share one query. */
  function readOnce(hash: string): Promise<TokenRef | undefined> {
    const running = reading.get(hash);
    if (running) return running;
    const started: Promise<TokenRef | undefined> = read(hash)
      .then((found) => {
        const token = found && { name: found.name, sha256: found.sha256 };
        // Not when the session ended while the query ran.
        if (reading.get(hash) === started) remember(hash, token, found?.rest_ms);
        return cache.get(hash)?.token;
      })
      .finally(() => reading.get(hash) === started && reading.delete(hash));
    reading.set(hash, started);
    return started;
  }

  async function findOne(id: string): Promise<TokenRef | undefined> {
    if (!looksLikeSessionId(id) || !wasMadeWith(await sessionKey(), id)) return undefined;
    const hash = sessionIdSha256(id);
    const cached = cache.get(hash);
    const nowMs = clock.monotonicMs();
    if (!cached || nowMs >= cached.untilMs) return readOrKnown(hash);
    cached.usedMs = nowMs;
    return cached.token;
  }

  return {
    ageMaxSeconds,
    async open(token, act) {
      const id = newSessionId(options.random, await sessionKey());
      const session = { idSha256: sessionIdSha256(id), token, ageMaxSeconds };
      await recorded(db, act, {
        write: (tx) => insertSession(tx, session),
        subjectOf: () => token.name,
      });
      return id;
    },
    async find(ids) {
      for (const id of ids) {
        const token = await findOne(id);
        if (token) return token;
      }
      return undefined;
    },
    async end(ids) {
      for (const id of ids.filter(looksLikeSessionId)) {
        const hash = sessionIdSha256(id);
        await deleteSession(db, hash);
        reading.delete(hash);
        remember(hash, undefined);
      }
    },
    forgetEnded: () => forgetEndedSessions(db, idleSeconds),
  };
}
