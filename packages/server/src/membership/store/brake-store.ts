import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";

export interface BrakeRow {
  active: boolean;
  since: Date | null;
  lost: number;
  members: number;
}

export async function readBrake(db: Db): Promise<BrakeRow> {
  const { rows } = await db.query<BrakeRow>(
    sql`select active, since, lost, members from membership_brake`,
  );
  return rows[0]!;
}

/**
 * Engages the brake when more than half of the node-units that count, and at least 3, were lost within one TTL. Disengages
 * it when all of them are back, or when the loss is no mass loss any more and the counts have not changed for one TTL:
 * nodes of one fault come back one after another. While it is active, the losses that engaged it count however long ago
 * they were. Answers the new state when it went on or off. One statement, so that of many instances that see the same
 * loss one writes the event.
 */
export async function judgeBrake(db: Db, ttlMs: number): Promise<BrakeRow | undefined> {
  const { rows } = await db.query<BrakeRow & { was: boolean }>(sql`
    with moment as materialized (select tenure_now() as now),
    brake as (
      select active as was, lost as lost_before, members as members_before, changed_at as changed_before, since as since_before,
             greatest(released_at,
                      case when active then since else moment.now end - ${ttlMs} * interval '1 ms') as counted_from
        from membership_brake, moment),
    counted as (
      select brake.*, loss.lost, loss.present,
             (lost_before, members_before) is distinct from (loss.lost, loss.lost + loss.present) as differs,
             tenure_is_mass_loss(loss.lost, loss.present) as is_mass
        from brake, tenure_losses(brake.counted_from, null) as loss),
    judged as (
      select counted.*,
             is_mass or (was and lost > 0
                         and (differs or coalesce(changed_before, since_before) > moment.now - ${ttlMs} * interval '1 ms')) as now_active
        from counted, moment)
    update membership_brake
       set active     = judged.now_active,
           since      = case when judged.was then membership_brake.since else moment.now end,
           changed_at = case when judged.differs then moment.now else membership_brake.changed_at end,
           lost       = judged.lost,
           members    = judged.lost + judged.present
      from judged, moment
     where (judged.now_active or judged.was) and (judged.now_active <> judged.was or judged.differs)
       and membership_brake.active = judged.was
    returning active, membership_brake.since, membership_brake.lost, members, judged.was`);
  const [row] = rows;
  if (!row || row.was === row.active) return undefined;
  const { was: _, ...brake } = row;
  return brake;
}

/** An operator has looked: what was lost until now is lost. `false` when the brake was not on. */
export async function releaseBrake(db: Db): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update membership_brake set active = false, released_at = tenure_now() where active`);
  return rowCount === 1;
}
