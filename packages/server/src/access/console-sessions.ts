import { type Act, recorded } from "../audit/actor.ts";
import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Random } from "../kernel/random.ts";
import type { Db } from "../store/db.ts";
import type { TokenRef } from "./authenticator.ts";
import {
  deleteSession,
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
  settings: Pick<Config["auth"], "console_session_seconds" | "console_idle_seconds">;
}

export interface ConsoleSessions {
  readonly ageMaxSeconds: number;
  /** Starts a session and returns its id. The id itself is not stored. */
  open(token: TokenRef, act?: Act): Promise<string>;
  /** The token of the first of these ids that is a live session. Rejects with `DEPENDENCY_DOWN` without Postgres. */
  find(ids: readonly string[]): Promise<TokenRef | undefined>;
  end(ids: readonly string[]): Promise<void>;
  /** Deletes the rows of sessions that are over. */
  forgetEnded(): Promise<void>;
}

/** How long a row of Postgres is cached: a sign-out at another instance takes effect within this time. */
const CACHE_MS = 5_000;
const CACHED_MAX = 10_000;
/** How often the use of a session is stored. */
const TOUCH_MS = 60_000;

interface Cached {
  /** `undefined`: the session is over. */
  token: TokenRef | undefined;
  untilMs: number;
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

  function remember(hash: string, token: TokenRef | undefined): void {
    cache.delete(hash);
    cache.set(hash, { token, untilMs: clock.monotonicMs() + CACHE_MS });
    if (cache.size > CACHED_MAX) cache.delete(cache.keys().next().value!);
  }

  async function read(hash: string): Promise<TokenRef | undefined> {
    const found = await findSession(db, hash, idleSeconds);
    // A Postgres that takes no writes can still be read: the sessions stay valid.
    if (found && found.unseen_ms >= touchMs) await touchSession(db, hash).catch(() => {});
    return found && { name: found.name, sha256: found.sha256 };
  }

  /** Single-flight: the requests of one page arrive together and share one query. */
  function readOnce(hash: string): Promise<TokenRef | undefined> {
    const running = reading.get(hash);
    if (running) return running;
    const started: Promise<TokenRef | undefined> = read(hash)
      .then((token) => {
        // Not when the session ended while the query ran.
        if (reading.get(hash) === started) remember(hash, token);
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
    return cached && clock.monotonicMs() < cached.untilMs ? cached.token : readOnce(hash);
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
