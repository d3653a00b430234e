import type { TokenScopes } from "@tenure/protocol";
import { type Db, parseTimestamp } from "../store/db.ts";
import { json, sql } from "../store/sql.ts";

/** A row as it is, also one that was written by hand. */
export interface TokenRow {
  id: string;
  name: string;
  role: string;
  tenant: string;
  scopes: unknown;
  sha256: string;
  former_sha256: string | null;
  former_until: Date | null;
  created_at: Date;
  created_by: string;
  expires_at: Date | null;
  revoked_at: Date | null;
  last_used_at: Date | null;
  is_join: boolean;
  used_at: Date | null;
  used_address: string | null;
  used_sha256: string | null;
  version: number;
  /** Of all columns but `last_used_at`. */
  hash: string;
}

/** As JSON: a `select *` of this release would fail beside a newer one that adds a column. */
interface Selected {
  row: Record<string, unknown>;
  hash: string;
}

const firstOf = ([first]: Selected[]): TokenRow | undefined => first && readRow(first);

const TIMES = ["former_until", "created_at", "expires_at", "revoked_at", "last_used_at", "used_at"];

function readRow({ row, hash }: Selected): TokenRow {
  const times = TIMES.map((name) => {
    const text = row[name];
    return [name, typeof text === "string" ? parseTimestamp(text) : null];
  });
  return { ...row, ...Object.fromEntries(times), hash } as TokenRow;
}

/** The state of the table: what a reader compares to know whether it has to read rows. */
export interface TokenMark {
  version: number;
  /** The version of the last deletion. */
  deleted: number;
  now: Date;
}

export async function readTokenMark(db: Db): Promise<TokenMark> {
  const { rows } = await db.query<TokenMark>(
    sql`
    select coalesce(max(version), 0)::bigint as version, coalesce(max(deleted), 0)::bigint as deleted, tenure_now() as now
      from token_change`,
  );
  return rows[0]!;
}

/** Rows written after this version; 0 = all. */
export async function readTokensAfter(db: Db, version: number): Promise<TokenRow[]> {
  const { rows } = await db.query<Selected>(
    version === 0
      ? sql`select to_jsonb(token) as row, tenure_token_hash(token) as hash from token`
      : sql`select to_jsonb(token) as row, tenure_token_hash(token) as hash from token where version > ${version}`,
  );
  return rows.map(readRow);
}

/** The hash of each row, by id. */
export async function readTokenHashes(db: Db): Promise<Map<string, string>> {
  const { rows } = await db.query<{ id: string; hash: string }>(
    sql`select id, tenure_token_hash(token) as hash from token`,
  );
  return new Map(rows.map(({ id, hash }) => [id, hash]));
}

export interface NewToken {
  id: string;
  name: string;
  role: string;
  tenant: string;
  scopes: TokenScopes;
  sha256: string;
  createdBy: string;
  expiresInSeconds: number | undefined;
  isJoin: boolean;
}

/** Rows of one tenant, and of all: every instance keeps them in memory. */
export const TENANT_TOKENS_MAX = 20_000;
export const TOKENS_MAX = 50_000;

/** `undefined`: the tenant or the table is full. */
export async function insertToken(db: Db, token: NewToken): Promise<TokenRow | undefined> {
  const { rows } = await db.query<Selected>(sql`
    insert into token (id, name, role, tenant, scopes, sha256, created_by, expires_at, is_join)
    select ${token.id}, ${token.name}, ${token.role}, ${token.tenant}, ${json(token.scopes)}::jsonb, ${token.sha256},
           ${token.createdBy}, tenure_now() + ${token.expiresInSeconds ?? null}::float8 * interval '1 s', ${token.isJoin}
     where (select count(*) from token) < ${TOKENS_MAX}
       and (select count(*) from token where tenant = ${token.tenant}) < ${TENANT_TOKENS_MAX}
    returning to_jsonb(token) as row, tenure_token_hash(token) as hash`);
  return firstOf(rows);
}

/** `tenant` `*` = of any tenant. */
export async function findToken(db: Db, id: string, tenant: string): Promise<TokenRow | undefined> {
  const { rows } = await db.query<Selected>(sql`
    select to_jsonb(token) as row, tenure_token_hash(token) as hash from token where id = ${id} and (${tenant} = '*' or tenant = ${tenant})`);
  return firstOf(rows);
}

export interface TokenFilter {
  tenant: string;
  name: string | undefined;
  /** Without those that are over. */
  live: boolean;
  /** The first id of the page. */
  fromId: string | undefined;
  limit: number;
}

/** Newest first: ids that the server makes begin with their time. */
export async function listTokens(db: Db, filter: TokenFilter): Promise<TokenRow[]> {
  const { tenant, name = null, live, fromId = null, limit } = filter;
  const { rows } = await db.query<Selected>(sql`
    select to_jsonb(token) as row, tenure_token_hash(token) as hash from token
     where (${tenant} = '*' or tenant = ${tenant})
       and (${name}::text is null or name = ${name})
       and (not ${live} or (revoked_at is null and used_at is null and coalesce(expires_at > tenure_now(), true)))
       and (${fromId}::uuid is null or id <= ${fromId}::uuid)
     order by id desc limit ${limit}`);
  return rows.map(readRow);
}

/** Compared, so that what was judged is what is written. */
interface Judged {
  id: string;
  version: number;
}

/** `undefined`: the row was changed meanwhile. One that is revoked keeps its time. */
export async function revokeToken(db: Db, token: Judged): Promise<TokenRow | undefined> {
  const { rows } = await db.query<Selected>(sql`
    update token set revoked_at = coalesce(revoked_at, tenure_now())
     where id = ${token.id} and version = ${token.version} returning to_jsonb(token) as row, tenure_token_hash(token) as hash`);
  return firstOf(rows);
}

/** `undefined`: the row was changed meanwhile, or the token is over. */
export async function rotateToken(
  db: Db,
  token: Judged & { sha256: string; graceSeconds: number; expiresInSeconds: number | undefined },
): Promise<TokenRow | undefined> {
  const { rows } = await db.query<Selected>(sql`
    update token
       set former_sha256 = case when ${token.graceSeconds}::float8 > 0 then sha256 end,
           former_until = case when ${token.graceSeconds}::float8 > 0
                               then tenure_now() + ${token.graceSeconds}::float8 * interval '1 s' end,
           sha256 = ${token.sha256},
           expires_at = coalesce(tenure_now() + ${token.expiresInSeconds ?? null}::float8 * interval '1 s', expires_at)
     where id = ${token.id} and version = ${token.version} and revoked_at is null and not is_join
       and coalesce(expires_at > tenure_now(), true)
    returning to_jsonb(token) as row, tenure_token_hash(token) as hash`);
  return firstOf(rows);
}

export interface Enrolment {
  /** Of the join token. */
  joinId: string;
  /** Of the node's own token. */
  id: string;
  name: string;
  scopes: TokenScopes;
  address: string;
  sha256: string;
}

/** Uses a join token up and creates the node's token: one statement, so that one of two nodes wins. `undefined` for the other. */
export async function enrol(db: Db, given: Enrolment): Promise<TokenRow | undefined> {
  const { rows } = await db.query<Selected>(sql`
    with used as (
      update token set used_at = tenure_now(), used_address = ${given.address}, used_sha256 = ${given.sha256}
       where id = ${given.joinId} and is_join and used_at is null and revoked_at is null
         and coalesce(expires_at > tenure_now(), false)
      returning id, role, tenant)
    insert into token (id, name, role, tenant, scopes, sha256, created_by)
    select ${given.id}, ${given.name}, used.role, used.tenant, ${json(given.scopes)}::jsonb, ${given.sha256},
           'join token ' || used.id
      from used
    returning to_jsonb(token) as row, tenure_token_hash(token) as hash`);
  return firstOf(rows);
}

/** The token of a secret, in whatever state. */
export async function findTokenBySha256(db: Db, sha256: string): Promise<TokenRow | undefined> {
  const { rows } = await db.query<Selected>(
    sql`select to_jsonb(token) as row, tenure_token_hash(token) as hash from token where sha256 = ${sha256}`,
  );
  return firstOf(rows);
}

export interface TokenUse {
  id: string;
  agoMs: number;
}

/** Stores when tokens were used, unless another instance did within the last minute. */
export async function recordUses(db: Db, uses: readonly TokenUse[]): Promise<void> {
  await db.query(sql`
    with used as (
      select id, tenure_now() - ago_ms * interval '1 ms' as at
        from unnest(${uses.map(({ id }) => id)}::uuid[], ${uses.map(({ agoMs }) => agoMs)}::float8[]) as given(id, ago_ms)),
    held as (
      select token.id, used.at from token join used using (id)
       where coalesce(token.last_used_at < used.at - interval '50 s', true)
       order by token.id for update of token skip locked)
    update token set last_used_at = held.at from held where held.id = token.id`);
}

/** Rows of tokens that ended are kept for a week, for `tenure token ls` and to refuse their secrets without a read. */
export async function forgetEndedTokens(db: Db): Promise<void> {
  await db.query(sql`
    delete from token
     where least(revoked_at, expires_at, used_at) < tenure_now() - interval '7 days'`);
}
