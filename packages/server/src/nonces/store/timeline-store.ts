import type { Db } from "../../store/db.ts";
import { json, sql } from "../../store/sql.ts";
import type { Position } from "../witness.ts";

export interface HistoryCheck {
  /** `unknown`: the role may not read which Postgres this is. */
  state: "confirmed" | "refused" | "unknown";
  reason: string | null;
  /** Refused by this very check, and not before. */
  is_new: boolean;
  system_identifier: string;
  timeline: number;
  /** Microseconds since 1970: one confirmation, and one run of the Postgres server. */
  confirmed_at: number;
  run: number;
  /** Everything below is on its disk. */
  wal: string;
}

/**
 * Compares the history that answers with the confirmed one and with what the witness knows. The first Postgres ever
 * asked is the confirmed one. A refusal is recorded and holds for every instance until an operator confirms.
 */
export async function checkHistory(db: Db, witness: Position | undefined): Promise<HistoryCheck> {
  const { rows } = await db.query<{ found: HistoryCheck }>(sql`
    select nonce_check_history(${witness ? json(witness) : null}::jsonb) as found`);
  return rows[0]!.found;
}

/** Whether what answers is still what was checked, as `nonce_commit` compares it; up to where its WAL is on disk. */
export async function readCheckedWal(db: Db, checked: Position): Promise<string | undefined> {
  const { rows } = await db.query<{ wal: string }>(sql`
    select pg_current_wal_flush_lsn()::text as wal
      from tenure_meta as meta
     where meta.run_started_at = pg_postmaster_start_time()
       and meta.table_oid = meta.tableoid
       and coalesce(meta.refused_at <= meta.confirmed_at, true)
       and tenure_us(meta.run_started_at) = ${checked.run}
       and tenure_us(meta.confirmed_at) = ${checked.confirmed_at}
       and pg_current_wal_insert_lsn() >= ${checked.wal}::pg_lsn`);
  return rows[0]?.wal;
}

/** An operator accepts the Postgres that answers now, with whatever it lacks. */
export async function confirmHistory(
  db: Db,
  witness: Position | undefined,
): Promise<{ system_identifier: string; timeline: number }> {
  const { rows } = await db.query<{ found: HistoryCheck }>(
    sql`select nonce_confirm_history(${witness?.confirmed_at ?? null}::bigint) as found`,
  );
  const { system_identifier, timeline } = rows[0]!.found;
  return { system_identifier, timeline };
}
