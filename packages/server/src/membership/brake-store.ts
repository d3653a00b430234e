import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";

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

const LOST_MIN = 3;

/**
 * Puts the brake on when more than half of the node-units, and at least 3, were lost within one TTL, and takes
 * it off when enough of those are back. While it is on, the losses that put it on go on counting however long
 * ago they were: time alone does not bring a node back. Answers the new state when it changed. One statement,
 * so that of many instances that see the same loss one says it.
 */
export async function judgeBrake(db: Db, ttlMs: number): Promise<BrakeRow | undefined> {
  const { rows } = await db.query<BrakeRow>(sql`
    with loss as (
      select (select count(*) from node_unit
               where online and presence_expires_at > tenure_now())::int as present,
             (select count(*) from node_unit
               where case when online then presence_expires_at else left_at end
                     between greatest(released_at,
                                      case when active then since else tenure_now() end
                                      - ${ttlMs} * interval '1 ms')
                         and tenure_now())::int as lost
        from membership_brake)
    update membership_brake
       set active  = loss.lost >= ${LOST_MIN} and loss.lost > loss.present,
           since   = case when active then since else tenure_now() end,
           lost    = loss.lost,
           members = loss.lost + loss.present
      from loss
     where active <> (loss.lost >= ${LOST_MIN} and loss.lost > loss.present)
    returning active, since, membership_brake.lost, members`);
  return rows[0];
}

/** An operator has looked: what was lost until now is lost. `false` when the brake was not on. */
export async function releaseBrake(db: Db): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update membership_brake set active = false, released_at = tenure_now() where active`);
  return rowCount === 1;
}
