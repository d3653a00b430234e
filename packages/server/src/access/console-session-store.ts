import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";
import type { TokenRef } from "./authenticator.ts";

/** Sessions of one token. Beyond it the oldest one ends. */
const SESSIONS_PER_TOKEN_MAX = 10_000;

export async function readSessionKey(db: Db): Promise<string> {
  const { rows } = await db.query<{ key: string }>(sql`select key from console_session_key`);
  return rows[0]!.key;
}

export async function insertSession(
  db: Db,
  { idSha256, token, ageMaxSeconds }: { idSha256: string; token: TokenRef; ageMaxSeconds: number },
): Promise<void> {
  await db.query(sql`
    with surplus as (
      delete from console_session
       where id_sha256 in (select id_sha256 from console_session
                            where token_sha256 = ${token.sha256}
                            order by created_at desc
                           offset ${SESSIONS_PER_TOKEN_MAX - 1}))
    insert into console_session (id_sha256, token_name, token_sha256, expires_at)
    values (${idSha256}, ${token.name}, ${token.sha256}, tenure_now() + ${ageMaxSeconds} * interval '1 s')`);
}

export interface FoundSession extends TokenRef {
  /** Since the last stored use. */
  unseen_ms: number;
  /** Until the session ends, however it is used. */
  rest_ms: number;
}

/** `undefined`: there is no such session, or it is over. */
export async function findSession(
  db: Db,
  idSha256: string,
  idleSeconds: number,
): Promise<FoundSession | undefined> {
  const { rows } = await db.query<FoundSession>(sql`
    select token_name as name, token_sha256 as sha256,
           floor(extract(epoch from moment.now - seen_at) * 1000)::bigint as unseen_ms,
           floor(extract(epoch from expires_at - moment.now) * 1000)::bigint as rest_ms
      from console_session, (select tenure_now() as now) as moment
     where id_sha256 = ${idSha256}
       and expires_at > moment.now
       and seen_at > moment.now - ${idleSeconds} * interval '1 s'`);
  return rows[0];
}

export async function touchSession(db: Db, idSha256: string): Promise<void> {
  await db.query(sql`
    update console_session set seen_at = greatest(seen_at, tenure_now()) where id_sha256 = ${idSha256}`);
}

export async function deleteSession(db: Db, idSha256: string): Promise<void> {
  await db.query(sql`delete from console_session where id_sha256 = ${idSha256}`);
}

export async function forgetEndedSessions(db: Db, idleSeconds: number): Promise<void> {
  await db.query(sql`
    delete from console_session
     where expires_at <= tenure_now() or seen_at <= tenure_now() - ${idleSeconds} * interval '1 s'`);
}
