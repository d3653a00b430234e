import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";

export interface Instance {
  instance_id: string;
  boot_id: string;
  url: string;
  version: string;
  started_at: Date;
  expires_at: Date;
}

export interface InstanceTerm {
  instanceId: string;
  bootId: string;
  ttlMs: number;
}

/** `undefined` while another boot under the same id is still alive: two processes must not share a name. */
export async function registerInstance(
  db: Db,
  { instanceId, bootId, ttlMs, url, version }: InstanceTerm & { url: string; version: string },
): Promise<Instance | undefined> {
  const { rows } = await db.query<Instance>(sql`
    insert into instance as current (instance_id, boot_id, url, version, expires_at)
    values (${instanceId}, ${bootId}, ${url}, ${version}, tenure_now() + ${ttlMs} * interval '1 ms')
    on conflict (instance_id) do update
       set boot_id    = excluded.boot_id,
           url        = excluded.url,
           version    = excluded.version,
           started_at = excluded.started_at,
           expires_at = excluded.expires_at
     where current.boot_id = excluded.boot_id or current.expires_at <= tenure_now()
    returning *`);
  return rows[0];
}

/** `false` when the row belongs to another boot by now. */
export async function renewInstance(
  db: Db,
  { instanceId, bootId, ttlMs }: InstanceTerm,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update instance
       set expires_at = tenure_now() + ${ttlMs} * interval '1 ms'
     where instance_id = ${instanceId} and boot_id = ${bootId}`);
  return rowCount === 1;
}

export async function removeInstance(
  db: Db,
  { instanceId, bootId }: { instanceId: string; bootId: string },
): Promise<void> {
  await db.query(
    sql`delete from instance where instance_id = ${instanceId} and boot_id = ${bootId}`,
  );
}

export async function liveInstances(db: Db): Promise<Instance[]> {
  const { rows } = await db.query<Instance>(sql`
    select instance_id, boot_id, url, version, started_at, expires_at
      from instance
     where expires_at > tenure_now()
     order by instance_id`);
  return rows;
}

/** Deletes the rows of processes that did not come back for a day. */
export async function forgetDeadInstances(db: Db): Promise<void> {
  await db.query(sql`delete from instance where expires_at < tenure_now() - interval '1 day'`);
}
