import { serves } from "@tenure/protocol";
import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";

export interface BrakeRow {
  active: boolean;
  since: Date | null;
  lost: number;
  members: number;
}

/** The brake of one tenant. */
export interface TenantBrake extends BrakeRow {
  tenant: string;
}

/** The brakes that are on. */
export async function listBrakes(db: Db): Promise<TenantBrake[]> {
  const { rows } = await db.query<TenantBrake>(
    sql`select tenant, true as active, since, lost, members from tenant_brake order by lost desc, tenant`,
  );
  return rows;
}

/** One of these brakes that concerns one of these tenants: that of the largest loss. */
export function brakeOf(brakes: readonly TenantBrake[], tenants: readonly string[]): BrakeRow {
  const concerned = brakes.find(({ tenant }) => serves(tenants, tenant));
  return concerned ?? { active: false, since: null, lost: 0, members: 0 };
}

/**
 * Engages the brake of a tenant when more than half of the node-units that serve it and count, and at least 3, were lost
 * within one TTL. Disengages it when all of them are back, or when the loss is no mass loss any more and the counts have not
 * changed for one TTL: nodes of one fault come back one after another. While it is active, the losses that engaged it count
 * however long ago they were. Answers the brakes that went on or off. One statement, so that of many instances that see the
 * same loss one writes the event.
 */
export async function judgeBrakes(db: Db, ttlMs: number): Promise<TenantBrake[]> {
  const { rows } = await db.query<TenantBrake>(sql`
    with moment as materialized (select tenure_now() as now, ${ttlMs} * interval '1 ms' as ttl),
    concerned as (
      select tenant from tenant_brake
      union
      select known.tenant
        from (select 'default' as tenant union select deployment.tenant from deployment) as known
       where (select tenure_is_mass_loss(recent.lost, 0)
                from moment, tenure_losses(moment.now - moment.ttl, null) as recent)),
    counted as (
      select concerned.tenant, brake.tenant is not null as was, brake.since, brake.changed_at, loss.lost,
             loss.lost + loss.present as members, tenure_is_mass_loss(loss.lost, loss.present) as is_mass,
             (brake.lost, brake.members) is distinct from (loss.lost, loss.lost + loss.present) as differs
        from concerned
        left join tenant_brake as brake on brake.tenant = concerned.tenant
        cross join membership_brake cross join moment
        cross join lateral tenure_losses(
          greatest(membership_brake.released_at, coalesce(brake.since, moment.now) - moment.ttl),
          null, concerned.tenant) as loss),
    judged as materialized (
      select counted.*, moment.now,
             is_mass or (was and lost > 0 and (differs or changed_at > moment.now - moment.ttl)) as now_active
        from counted, moment order by tenant),
    engaged as (
      insert into tenant_brake (tenant, since, changed_at, lost, members)
      select tenant, now, now, lost, members from judged where now_active and not was
      on conflict (tenant) do nothing
      returning tenant, true as active, since, lost, members),
    ended as (
      delete from tenant_brake using judged
       where tenant_brake.tenant = judged.tenant and judged.was and not judged.now_active
      returning tenant_brake.tenant, false as active, tenant_brake.since, judged.lost, judged.members),
    held as (
      update tenant_brake set lost = judged.lost, members = judged.members, changed_at = judged.now
        from judged
       where tenant_brake.tenant = judged.tenant and judged.was and judged.now_active and judged.differs)
    select * from engaged union all select * from ended`);
  return rows;
}

/** An operator has looked: what was lost until now is lost. `false` when no brake was on. */
export async function releaseBrake(db: Db): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    with released as (delete from tenant_brake returning tenant)
    update membership_brake set active = false, released_at = tenure_now()
      from (select count(*) as brakes from released) as ended
     where ended.brakes > 0 or active`);
  return rowCount === 1;
}
