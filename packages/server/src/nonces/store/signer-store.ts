import type { NonceStatus } from "@tenure/protocol";
import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";
import type { NonceRow } from "./nonce-store.ts";

export interface SignerRow {
  signer: string;
  tenant: string;
  next_nonce: number;
  /** Null while no instance owns the signer. */
  owner_node: string | null;
  fencing_token: number;
  acquired_at: Date | null;
  expires_at: Date | null;
  held: number;
  released: number;
  quarantined: number;
  updated_at: Date;
}

/** `tenant` is whose signers are seen; `*`: all. */
export async function readSigner(
  db: Db,
  signer: string,
  tenant: string,
): Promise<SignerRow | undefined> {
  const [row] = await listSigners(db, { fromSigner: signer, limit: 1, tenant });
  return row?.signer === signer ? row : undefined;
}

export async function readSignerTenant(db: Db, signer: string): Promise<string | undefined> {
  const { rows } = await db.query<{ tenant: string }>(sql`
    select tenant from signer_lease where signer = ${signer}`);
  return rows[0]?.tenant;
}

/**
 * Gives a signer with all its numbers to another tenant; answers whose it was. Undefined: `from` (`*`: any) has no such
 * signer. The row's lock is the one that commits take, so each commit is judged by the tenant before or after.
 */
export async function moveSigner(
  db: Db,
  { signer, from, to }: { signer: string; from: string; to: string },
): Promise<string | undefined> {
  const { rows } = await db.query<{ tenant: string }>(sql`
    with former as (
      select signer, tenant from signer_lease
       where signer = ${signer} and (${from} = '*' or tenant = ${from}) for update)
    update signer_lease as lease set tenant = ${to}, updated_at = tenure_now()
      from former where lease.signer = former.signer
    returning former.tenant`);
  return rows[0]?.tenant;
}

export interface StrandedSigners {
  tenant: string;
  count: number;
  /** The first of them. */
  signers: string[];
}

/** Signers of tenants other than `served`. */
export async function listStrandedSigners(
  db: Db,
  served: readonly string[],
): Promise<StrandedSigners[]> {
  const { rows } = await db.query<StrandedSigners>(sql`
    select tenant, count(*)::int as count, (array_agg(signer order by signer))[1:20] as signers
      from signer_lease where tenant <> all (${served}::text[])
     group by tenant order by tenant`);
  return rows;
}

/**
 * In the order of their names, from `fromSigner` on. What is open is counted in the partial indexes. No tenant is named `*`,
 * so one of the two branches is empty, and each has its index.
 */
export async function listSigners(
  db: Db,
  { fromSigner, limit, tenant }: { fromSigner: string; limit: number; tenant: string },
): Promise<SignerRow[]> {
  const { rows } = await db.query<SignerRow>(sql`
    select lease.signer,
           lease.tenant,
           coalesce(state.next_local_nonce, 0)                                       as next_nonce,
           case when lease.expires_at > tenure_now() then lease.owner_node end       as owner_node,
           lease.fencing_token,
           case when lease.expires_at > tenure_now() then lease.acquired_at end      as acquired_at,
           case when lease.expires_at > tenure_now() then lease.expires_at end       as expires_at,
           (select count(*) from signer_nonce_allocation as a
             where a.signer = lease.signer and a.status = 'HELD' and a.locked_until > tenure_now()) as held,
           (select count(*) from signer_nonce_allocation as a
             where a.signer = lease.signer and a.status = 'RELEASED')                as released,
           (select count(*) from signer_nonce_allocation as a
             where a.signer = lease.signer
               and (a.status = 'QUARANTINED' or (a.status = 'HELD' and a.locked_until <= tenure_now()))) as quarantined,
           lease.updated_at
      from ((select * from signer_lease where ${tenant} = '*' and signer >= ${fromSigner}
              order by signer limit ${limit})
            union all
            (select * from signer_lease where tenant = ${tenant} and signer >= ${fromSigner}
              order by signer limit ${limit})) as lease
      left join signer_nonce_state as state on state.signer = lease.signer
     order by lease.signer`);
  return rows;
}

export interface NonceFilter {
  signer: string;
  fromNonce: number;
  limit: number;
}

/** In the order of the numbers, from `fromNonce` on. */
export async function listNonces(db: Db, filter: NonceFilter): Promise<NonceRow[]> {
  const { rows } = await db.query<NonceRow>(sql`
    select * from signer_nonce_allocation
     where signer = ${filter.signer} and nonce >= ${filter.fromNonce}
     order by nonce
     limit ${filter.limit}`);
  return rows;
}

/**
 * The same for one status. Each branch names its status as a literal, which is how Postgres finds the partial
 * index: three open numbers among ten million used ones are three steps. Used ones are everywhere, and found by key.
 */
export async function listNoncesIn(
  db: Db,
  { signer, fromNonce, limit, status }: NonceFilter & { status: NonceStatus },
): Promise<NonceRow[]> {
  const { rows } = await db.query<NonceRow>(sql`
    (select * from signer_nonce_allocation where ${status} = 'HELD' and signer = ${signer} and status = 'HELD'
        and nonce >= ${fromNonce} order by nonce limit ${limit})
    union all
    (select * from signer_nonce_allocation where ${status} = 'RELEASED' and signer = ${signer} and status = 'RELEASED'
        and nonce >= ${fromNonce} order by nonce limit ${limit})
    union all
    (select * from signer_nonce_allocation where ${status} = 'QUARANTINED' and signer = ${signer} and status = 'QUARANTINED'
        and nonce >= ${fromNonce} order by nonce limit ${limit})
    union all
    (select * from signer_nonce_allocation where ${status} = 'CONSUMED' and signer = ${signer} and status = 'CONSUMED'
        and nonce >= ${fromNonce} order by nonce limit ${limit})`);
  return rows;
}
