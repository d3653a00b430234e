import { ANY_TENANT } from "@tenure/protocol";
import type { Scope } from "../kernel/scope.ts";
import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";
import type { SecretIdentity } from "./sealing.ts";

/** An encrypted value. `sealed` is base64: the drivers read `bytea` differently. */
export interface SealedSecret extends SecretIdentity {
  key_id: string;
  sealed: string;
}

/** A secret as it is listed. */
export interface SecretRow extends SecretIdentity {
  key_id: string;
  used_by: { id: string; name: string }[];
  created_at: Date;
  updated_at: Date;
}

export interface SecretFilter extends Pick<Scope, "tenants"> {
  name?: string | null;
  after?: readonly [tenant: string, name: string] | undefined;
  limit: number;
}

export async function nextVersion(db: Db): Promise<number> {
  const { rows } = await db.query<{ version: number }>(
    sql`select nextval('secret_version') as version`,
  );
  return rows[0]!.version;
}

/** Stores a value, unless one with a later version is stored. */
export async function putSecret(db: Db, secret: SealedSecret): Promise<void> {
  const { tenant, name, version, key_id, sealed } = secret;
  await db.query(sql`
    insert into secret (tenant, name, version, key_id, sealed)
    values (${tenant}, ${name}, ${version}, ${key_id}, decode(${sealed}, 'base64'))
    on conflict (tenant, name) do update
       set version = excluded.version, key_id = excluded.key_id, sealed = excluded.sealed, updated_at = tenure_now()
     where secret.version < excluded.version`);
}

/**
 * Brings new versions to the deployments that refer to a secret: to one secret, to those set lately, or to all. Rows that are
 * being written are skipped: the next sweep finds them.
 */
export async function spreadVersions(
  db: Db,
  { tenant = null, name = null, ageSeconds = null }: SpreadFilter = {},
): Promise<number> {
  const { rowCount } = await db.query(sql`
    with stale as (
      select deployment.id
        from secret join deployment on deployment.tenant = secret.tenant and deployment.secret_versions ? secret.name
       where (${tenant}::text is null or (secret.tenant = ${tenant} and secret.name = ${name}))
         and (${ageSeconds}::int is null
              or secret.updated_at > tenure_now() - ${ageSeconds} * interval '1 s')
         and deployment.secret_versions <> '{}'
         and tenure_version(deployment.secret_versions, secret.name) <> secret.version
         for no key update of deployment skip locked)
    update deployment
       set secret_versions = tenure_secret_versions(tenant, env, secret_versions)
     where id in (select stale.id from stale)`);
  return rowCount;
}

export interface SpreadFilter {
  tenant?: string | null;
  name?: string | null;
  ageSeconds?: number | null | undefined;
}

/**
 * By tenant and name, in the order of the bytes; `after` is the last one of the page before. With `name` only those of that
 * name.
 */
export async function listSecrets(
  db: Db,
  { tenants, name = null, after, limit }: SecretFilter,
): Promise<SecretRow[]> {
  const isAny = tenants.includes(ANY_TENANT);
  const [afterTenant = null, afterName = null] = after ?? [];
  const { rows } = await db.query<SecretRow>(sql`
    select tenant, name, version, key_id, created_at, updated_at,
           (select coalesce(jsonb_agg(jsonb_build_object('id', id, 'name', tenure_deployment_name(deployment))
                                      order by id), '[]')
              from deployment
             where deployment.tenant = secret.tenant and secret_versions <> '{}' and secret_versions ? secret.name) as used_by
      from secret
     where (${isAny} or tenant = any(${tenants}::text[]))
       and (${name}::text is null or name = ${name})
       and (${afterTenant}::text is null
            or (tenant collate "C", name collate "C") > (${afterTenant}::text, ${afterName}::text))
     order by tenant collate "C", name collate "C"
     limit ${limit}`);
  return rows;
}

/** The encrypted values of these secrets, as far as they exist. */
export async function readSealed(
  db: Db,
  tenant: string,
  names: readonly string[],
): Promise<SealedSecret[]> {
  const { rows } = await db.query<SealedSecret>(sql`
    select tenant, name, version, key_id, encode(sealed, 'base64') as sealed
      from secret where tenant = ${tenant} and name = any(${names}::text[])`);
  return rows;
}

/** A page of encrypted values, in the order of the list. */
export async function listSealed(
  db: Db,
  { tenants, after, limit }: SecretFilter,
): Promise<SealedSecret[]> {
  const isAny = tenants.includes(ANY_TENANT);
  const [afterTenant = null, afterName = null] = after ?? [];
  const { rows } = await db.query<SealedSecret>(sql`
    select tenant, name, version, key_id, encode(sealed, 'base64') as sealed
      from secret
     where (${isAny} or tenant = any(${tenants}::text[]))
       and (${afterTenant}::text is null
            or (tenant collate "C", name collate "C") > (${afterTenant}::text, ${afterName}::text))
     order by tenant collate "C", name collate "C"
     limit ${limit}`);
  return rows;
}

/** Deletes a secret; with `force` also one that deployments refer to. */
export async function deleteSecret(
  db: Db,
  { tenant, name, force }: { tenant: string; name: string; force: boolean },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    delete from secret
     where tenant = ${tenant} and name = ${name}
       and (${force} or not exists (
              select from deployment
               where deployment.tenant = secret.tenant and secret_versions <> '{}' and secret_versions ? secret.name))`);
  return rowCount === 1;
}

/** Replaces the encryption of a value, unless another value was set meanwhile. */
export async function resealSecret(
  db: Db,
  { tenant, name, version, key_id, sealed, formerKeyId }: SealedSecret & { formerKeyId: string },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update secret set key_id = ${key_id}, sealed = decode(${sealed}, 'base64')
     where tenant = ${tenant} and name = ${name} and version = ${version} and key_id = ${formerKeyId}`);
  return rowCount === 1;
}
