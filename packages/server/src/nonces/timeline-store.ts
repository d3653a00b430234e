import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";

export interface Timeline {
  system_identifier: string;
  timeline: number;
}

export interface TimelineCheck {
  actual: Timeline;
  /** What was seen at first, or confirmed last. */
  confirmed: Timeline;
}

/**
 * Which Postgres answers, and which one we know. The first one ever asked becomes the known one.
 *
 * The timeline is taken from the name of the WAL file being written: `pg_control_checkpoint()` tells the one of the
 * last checkpoint, which for a while after a promotion is still the old one. Fails on a standby.
 */
export async function compareTimeline(db: Db): Promise<TimelineCheck> {
  const { rows } = await db.query<{
    system_identifier: string;
    timeline: number;
    known_system: string | null;
    known_timeline: number | null;
  }>(sql`
    with actual as (
      select system_identifier::text,
             ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint as timeline
        from pg_control_system()),
    known as (
      insert into tenure_meta (system_identifier, timeline)
      select system_identifier, timeline from actual
      on conflict (one) do nothing)
    select actual.system_identifier, actual.timeline,
           meta.system_identifier as known_system, meta.timeline as known_timeline
      from actual left join tenure_meta as meta on true`);
  const row = rows[0]!;
  const actual = { system_identifier: row.system_identifier, timeline: row.timeline };
  return {
    actual,
    confirmed: {
      system_identifier: row.known_system ?? actual.system_identifier,
      timeline: row.known_timeline ?? actual.timeline,
    },
  };
}

/** An operator accepts the Postgres that answers now, with whatever it lacks. */
export async function confirmTimeline(db: Db): Promise<Timeline> {
  const { rows } = await db.query<Timeline>(sql`
    insert into tenure_meta as meta (system_identifier, timeline)
    select system_identifier::text,
           ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint
      from pg_control_system()
    on conflict (one) do update
       set system_identifier = excluded.system_identifier,
           timeline          = excluded.timeline,
           confirmed_at      = tenure_now()
    returning system_identifier, timeline`);
  return rows[0]!;
}
