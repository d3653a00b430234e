import { systemClock } from "../../kernel/clock.ts";
import { every, type Service } from "../../kernel/service.ts";
import type { Result } from "../db.ts";
import { type Sql, sql } from "../sql.ts";

export interface UpkeepSettings {
  /** How often the amount of log since the last checkpoint is looked at. */
  checkIntervalMs: number;
  /** This much log is followed by a checkpoint. */
  checkpointBytes: number;
  /** Any log is followed by a checkpoint after this long. */
  checkpointIntervalMs: number;
  vacuumIntervalMs: number;
}

const DEFAULTS: UpkeepSettings = {
  checkIntervalMs: 2_000,
  // One segment. The pause of all other statements grows with what has to be written at once.
  checkpointBytes: 16 * 1024 * 1024,
  checkpointIntervalMs: 5 * 60_000,
  vacuumIntervalMs: 60_000,
};

export interface UpkeepPort {
  query<Row>(statement: Sql): Promise<Result<Row>>;
  /** Runs one statement as a turn of its own, so that others come in between. */
  run(text: string): Promise<void>;
  onError(error: unknown): void;
}

/**
 * Checkpoints, vacuum and analyze of the embedded Postgres, which runs without the background processes of a server.
 *
 * Without them the log and the tables grow for as long as the process lives, and a start after a crash replays all of it.
 * Each step is one statement and takes the one session for itself, so steps are small and frequent: a checkpoint per
 * segment of log, vacuum table by table and no later than 10,000 dead rows.
 */
export function createUpkeep(port: UpkeepPort, given: Partial<UpkeepSettings> = {}): Service {
  const settings = { ...DEFAULTS, ...given };
  let checkpointAtBytes = 0;
  let checkpointAtMs = performance.now();
  let vacuumAtMs = performance.now();

  async function checkpoint(): Promise<void> {
    const bytes = await logBytes(port);
    const isDue = performance.now() - checkpointAtMs >= settings.checkpointIntervalMs;
    if (bytes - checkpointAtBytes < (isDue ? 1 : settings.checkpointBytes)) return;
    await port.run("checkpoint");
    checkpointAtBytes = await logBytes(port);
    checkpointAtMs = performance.now();
  }

  async function vacuum(): Promise<void> {
    if (performance.now() - vacuumAtMs < settings.vacuumIntervalMs) return;
    vacuumAtMs = performance.now();
    for (const { command } of await tablesToVacuum(port)) await port.run(command);
  }

  return every(
    settings.checkIntervalMs,
    async () => {
      await checkpoint();
      await vacuum();
    },
    { clock: systemClock, onError: port.onError },
  );
}

async function logBytes(port: UpkeepPort): Promise<number> {
  const { rows } = await port.query<{ bytes: number }>(sql`
    select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint as bytes`);
  return rows[0]!.bytes;
}

/**
 * By the rules of autovacuum: a fifth of the rows dead, a tenth changed since the last analyze, or old transaction ids. At
 * most 10,000 rows, since the time of a step grows with them. TOAST tables are tables of their own here.
 */
async function tablesToVacuum(port: UpkeepPort): Promise<{ command: string }[]> {
  const { rows } = await port.query<{ command: string }>(sql`
    with measured as (
      select format('%I.%I', s.schemaname, s.relname) as name,
             s.schemaname = 'pg_toast' as is_toast,
             s.n_dead_tup > least(50 + 0.2 * s.n_live_tup, 10000) or age(c.relfrozenxid) > 150000000 as is_dirty,
             s.n_mod_since_analyze > least(50 + 0.1 * s.n_live_tup, 10000) as is_unknown
        from pg_stat_all_tables s join pg_class c on c.oid = s.relid)
    select case when is_dirty and is_toast then 'vacuum ' || name
                when is_dirty              then 'vacuum (analyze) ' || name
                else                            'analyze ' || name end as command
      from measured
     where is_dirty or (is_unknown and not is_toast)
     order by is_toast desc, name`);
  return rows;
}
