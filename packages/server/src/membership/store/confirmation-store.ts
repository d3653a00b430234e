import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";

/** A time of the database as text: a `Date` would cut it to milliseconds, and here the order of two times decides. */
export type Moment = string;

export async function readNow(db: Db): Promise<Moment> {
  const { rows } = await db.query<{ now: Moment }>(sql`select tenure_now()::text as now`);
  return rows[0]!.now;
}

/** Requests that every instance pings its node-units. A node-unit renewed after the returned moment was present. */
export async function requestConfirmation(db: Db): Promise<Moment> {
  const { rows } = await db.query<{ asked_at: Moment }>(
    sql`select tenure_now()::text as asked_at, pg_notify('tenure_confirm', '')`,
  );
  return rows[0]!.asked_at;
}

/** Every node-unit connected to this instance was pinged after `startedAt`, and those that answered were renewed. */
export async function markConfirmed(db: Db, instanceId: string, startedAt: Moment): Promise<void> {
  await db.query(sql`
    update instance set confirmed_at = ${startedAt}::timestamptz where instance_id = ${instanceId}`);
}

/** Whether the row belongs to this boot, and was not renewed after `since`. */
export async function isUnrenewedBoot(
  db: Db,
  { address, bootId, since }: { address: string; bootId: string; since: Moment },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    select from node_unit
     where address = ${address} and boot_id = ${bootId} and renewed_at <= ${since}::timestamptz`);
  return rowCount === 1;
}

/** Whether every present node-unit was renewed after `since`, or 5 s have passed: then a release waits no longer. */
export async function areMembersRenewed(db: Db, since: Moment): Promise<boolean> {
  const { rows } = await db.query<{ renewed: boolean }>(sql`
    select ${since}::timestamptz <= tenure_now() - interval '5 s'
           or not exists (select from node_unit_now
                           where online and lost_at > tenure_now()
                             and coalesce(renewed_at, '-infinity') <= ${since}::timestamptz) as renewed`);
  return rows[0]!.renewed;
}
