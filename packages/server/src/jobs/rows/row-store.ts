import type { JobError, JobOutcome } from "@tenure/protocol";
import { type Db, parseTimestamp } from "../../store/db.ts";
import { json, sql } from "../../store/sql.ts";
import type { JobAttempt } from "../job.ts";

export const ROW_STATES = ["scheduled", "open", "ended"] as const;
type RowState = (typeof ROW_STATES)[number];

interface RowName {
  jobId: string;
  tenant: string;
  requestId: string;
  bodyHash: string;
  pool: string;
  priority: number;
}

/** A durable job that a caller submits. */
export interface NewRow extends RowName {
  /** See `row-codec.ts`. */
  spec: object;
  /** JSON text. */
  payload: string;
  /** `open`: the caller writes it to the hot store. `scheduled`: it waits here until it is due. */
  state: Exclude<RowState, "ended">;
  /** When it is due, or in how many milliseconds. */
  runAt?: Date | undefined;
  runInMs: number;
}

/** How a job ended, in its row. */
interface RowEnd {
  outcome: JobOutcome;
  /** JSON text. */
  result?: string | undefined;
  error?: JobError | undefined;
}

/** A row without its payload and its result. */
export interface RowHead extends RowName {
  /** As it is in the table; SQL may have written anything. */
  spec: unknown;
  state: RowState;
  runAt: Date;
  attemptId: number;
  isDecided: boolean;
  countedAttempts: number;
  outcome: JobOutcome | undefined;
  error: unknown;
  createdAt: Date;
  endedAt: Date | undefined;
}

export interface RowWithPayload extends RowHead {
  payload: string;
}

/** The request id has a row already: its job may be another one. */
export type Inserted = "inserted" | "conflict";

/**
 * Inserts rows in one statement. Sorted, because two instances that insert the same request ids in different orders would
 * wait for each other's commits.
 */
export async function insertRows(db: Db, rows: readonly NewRow[]): Promise<Inserted[]> {
  const sorted = [...rows].sort(
    (a, b) => compare(a.tenant, b.tenant) || compare(a.requestId, b.requestId),
  );
  const { rows: made } = await db.query<{ job_id: string }>(sql`
    insert into job (job_id, tenant, request_id, body_hash, pool, priority, spec, payload, state, is_decided, run_at)
    select job_id, tenant, request_id, body_hash, pool, priority, spec, payload, state, state <> 'open',
           coalesce(run_at, tenure_now() + make_interval(secs => run_in_ms / 1000))
      from unnest(${sorted.map((row) => row.jobId)}::uuid[],
                  ${sorted.map((row) => row.tenant)}::text[],
                  ${sorted.map((row) => row.requestId)}::text[],
                  ${sorted.map((row) => row.bodyHash)}::text[],
                  ${sorted.map((row) => row.pool)}::text[],
                  ${sorted.map((row) => row.priority)}::int[],
                  ${sorted.map((row) => json(row.spec))}::jsonb[],
                  ${sorted.map((row) => row.payload)}::text[],
                  ${sorted.map((row) => row.state)}::text[],
                  ${sorted.map((row) => row.runAt ?? null)}::timestamptz[],
                  ${sorted.map((row) => row.runInMs)}::float8[])
        as given(job_id, tenant, request_id, body_hash, pool, priority, spec, payload, state, run_at, run_in_ms)
    on conflict (tenant, request_id) do nothing
    returning job_id`);
  const inserted = idsOf(made);
  return rows.map(({ jobId }) => (inserted.has(jobId) ? "inserted" : "conflict"));
}

/** Removes the rows of jobs that lost their request to another job, at this attempt. */
export async function undoRows(db: Db, jobs: readonly JobAttempt[]): Promise<void> {
  await db.query(sql`
    delete from job
     using unnest(${jobs.map(({ jobId }) => jobId)}::uuid[],
                  ${jobs.map(({ attemptId }) => attemptId)}::int[]) as given(job_id, attempt_id)
     where job.job_id = given.job_id and job.attempt_id = given.attempt_id and job.state = 'open' and not job.is_decided`);
}

/** Notes that these jobs have their requests. */
export async function decideRows(db: Db, jobIds: readonly string[]): Promise<void> {
  await db.query(sql`
    update job set is_decided = true where job_id = any (${jobIds}::uuid[]) and not is_decided`);
}

/** The next attempt of a job, after this one. */
export interface Raise extends JobAttempt {
  countedAttempts: number;
  /** The next attempt waits in the table for this long. Absent: the hot store has it at once. */
  backOffMs?: number | undefined;
}

/**
 * `raised`: the row has the next attempt, also by an earlier call; `waiting`: and waits for its back-off in the table. `over`:
 * the job has ended, or another attempt is current, or there is no row.
 */
export type Raised = "raised" | "waiting" | "over";

/** Writes the numbers of the next attempts, before the hot store uses them. */
export async function raiseRows(db: Db, raises: readonly Raise[]): Promise<Raised[]> {
  const { rows } = await db.query<{ job_id: string }>(sql`
    update job
       set attempt_id = given.attempt_id + 1,
           is_decided = true,
           counted_attempts = greatest(counted_attempts, given.counted),
           state = case when given.back_off_ms is null then 'open' else 'scheduled' end,
           is_due = false,
           run_at = case when given.back_off_ms is null then run_at
                         else tenure_now() + make_interval(secs => given.back_off_ms / 1000) end
      from unnest(${raises.map((raise) => raise.jobId)}::uuid[],
                  ${raises.map((raise) => raise.attemptId)}::int[],
                  ${raises.map((raise) => raise.countedAttempts)}::int[],
                  ${raises.map((raise) => raise.backOffMs ?? null)}::float8[])
        as given(job_id, attempt_id, counted, back_off_ms)
     where job.job_id = given.job_id and job.state = 'open' and job.attempt_id = given.attempt_id
    returning job.job_id`);
  const raised = idsOf(rows);
  const rest = raises.filter(({ jobId }) => !raised.has(jobId));
  const heads = byId(await readHeads(db, rest));
  return raises.map(({ jobId, attemptId, backOffMs }) => {
    if (raised.has(jobId)) return backOffMs === undefined ? "raised" : "waiting";
    const head = heads.get(jobId);
    if (!head || head.state === "ended" || head.attemptId !== attemptId + 1) return "over";
    return head.state === "scheduled" ? "waiting" : "raised";
  });
}

export interface End extends JobAttempt, RowEnd {}

/**
 * `ended`: by this call. `duplicate`: this attempt has ended the job before, with this outcome. `stale`: the job has ended
 * otherwise, or another attempt is current. `absent`: there is no row.
 */
export type Ended = "ended" | "duplicate" | "stale" | "absent";

/** Ends jobs at their current attempts. Of two ends of one job in one call the first counts. */
export async function endRows(db: Db, ends: readonly End[]): Promise<Ended[]> {
  const first = new Map<string, End>();
  for (const end of ends) if (!first.has(end.jobId)) first.set(end.jobId, end);
  const given = [...first.values()];
  const { rows } = await db.query<{ job_id: string }>(sql`
    update job
       set state = 'ended', is_due = false, outcome = given.outcome, result = given.result, error = given.error,
           ended_at = tenure_now()
      from unnest(${given.map((end) => end.jobId)}::uuid[],
                  ${given.map((end) => end.attemptId)}::int[],
                  ${given.map((end) => end.outcome)}::text[],
                  ${given.map((end) => end.result ?? null)}::text[],
                  ${given.map((end) => (end.error ? json(end.error) : null))}::jsonb[])
        as given(job_id, attempt_id, outcome, result, error)
     where job.job_id = given.job_id and job.state <> 'ended' and job.attempt_id = given.attempt_id
    returning job.job_id`);
  const ended = idsOf(rows);
  const isEnded = (end: End) => ended.has(end.jobId) && first.get(end.jobId) === end;
  const heads = byId(
    await readHeads(
      db,
      ends.filter((end) => !isEnded(end)),
    ),
  );
  return ends.map((end) => {
    if (isEnded(end)) return "ended";
    const head = heads.get(end.jobId);
    if (!head) return "absent";
    const isSame = head.attemptId === end.attemptId && head.outcome === end.outcome;
    return head.state === "ended" && isSame ? "duplicate" : "stale";
  });
}

/** The row of a job that the hot store lost, or has at an older attempt. */
export interface Refill {
  jobId: string;
  /** The attempt of the row when it was read. */
  seenAttemptId: number;
  /** The attempt of the record in the hot store; 0 if it has none. */
  hotAttemptId: number;
}

/**
 * Raises the attempts of jobs that the hot store lost, each to a number that neither row nor record had. Not of a row whose
 * number SQL has written close to the end of its type: the statement would fail for all. Answers the rows
 * raised by this call: a row that another instance has raised is left to that instance.
 */
export async function refillRows(db: Db, refills: readonly Refill[]): Promise<RowWithPayload[]> {
  const { rows } = await db.query<Selected>(sql`
    update job
       set attempt_id = greatest(job.attempt_id, given.hot) + 1
      from unnest(${refills.map((refill) => refill.jobId)}::uuid[],
                  ${refills.map((refill) => refill.seenAttemptId)}::int[],
                  ${refills.map((refill) => refill.hotAttemptId)}::int[]) as given(job_id, seen, hot)
     where job.job_id = given.job_id and job.state = 'open' and job.attempt_id = given.seen and job.attempt_id < 2000000000
    returning to_jsonb(job) as row`);
  return rows.map(withPayload);
}

/** Raises rows to the attempts of their records, where those are ahead. */
export async function followRecords(db: Db, records: readonly JobAttempt[]): Promise<void> {
  await db.query(sql`
    update job
       set attempt_id = given.attempt_id
      from unnest(${records.map(({ jobId }) => jobId)}::uuid[],
                  ${records.map(({ attemptId }) => attemptId)}::int[]) as given(job_id, attempt_id)
     where job.job_id = given.job_id and job.state = 'open' and job.attempt_id < given.attempt_id`);
}

/** An open row, as much of it as the comparison with the hot store needs. */
export interface OpenRow extends JobAttempt {
  /** Its submit may not have written its record yet. */
  isYoung: boolean;
}

/** Open rows in the order of their ids, after `afterId`. */
export async function readOpenRows(
  db: Db,
  { afterId, limit }: { afterId: string | undefined; limit: number },
): Promise<OpenRow[]> {
  const { rows } = await db.query<{ job_id: string; attempt_id: number; is_young: boolean }>(sql`
    select job_id, attempt_id, created_at > tenure_now() - make_interval(secs => ${YOUNG_MS / 1_000}::float8) as is_young
      from job
     where state = 'open' and job_id > ${afterId ?? NO_ID}::uuid
     order by job_id
     limit ${limit}`);
  return rows.map((row) => ({
    jobId: row.job_id,
    attemptId: row.attempt_id,
    isYoung: row.is_young,
  }));
}

const YOUNG_MS = 5_000;
const NO_ID = "00000000-0000-0000-0000-000000000000";

/** Which jobs are due now; answers whether there may be more. */
export async function markDue(db: Db, limit: number): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update job set is_due = true
     where job_id = any (array(
             select job_id from job
              where state = 'scheduled' and not is_due and run_at <= tenure_now()
              order by run_at
              limit ${limit}
                for update skip locked))`);
  return rowCount === limit;
}

/** The pools that have due jobs: one step in the index for each. */
export async function poolsWithDue(db: Db): Promise<string[]> {
  const { rows } = await db.query<{ pool: string }>(sql`
    with recursive found as (
      (select pool from job where state = 'scheduled' and is_due order by pool limit 1)
      union all
      select (select pool from job where state = 'scheduled' and is_due and pool > found.pool order by pool limit 1)
        from found where found.pool is not null)
    select pool from found where pool is not null`);
  return rows.map(({ pool }) => pool);
}

/**
 * Opens due jobs of a pool: by priority, then the tenants in turns, then by age. Each tenant's best jobs come from the index,
 * so a tenant with many waiting jobs costs no more than one with few.
 */
export async function takeDue(
  db: Db,
  { pool, limit }: { pool: string; limit: number },
): Promise<RowWithPayload[]> {
  const { rows } = await db.query<Selected>(sql`
    with recursive tenants as (
      (select tenant from job where state = 'scheduled' and is_due and pool = ${pool} order by tenant limit 1)
      union all
      select (select tenant from job
               where state = 'scheduled' and is_due and pool = ${pool} and tenant > tenants.tenant
               order by tenant limit 1)
        from tenants where tenants.tenant is not null),
    ranked as (
      select best.job_id, best.priority, best.run_at,
             row_number() over (partition by tenants.tenant, best.priority order by best.run_at) as turn
        from tenants
        cross join lateral (
          select job_id, priority, run_at from job
           where state = 'scheduled' and is_due and pool = ${pool} and tenant = tenants.tenant
           order by priority desc, run_at
           limit ${limit}) as best
       where tenants.tenant is not null),
    chosen as (
      select job.job_id from job join ranked using (job_id)
       where job.state = 'scheduled'
       order by ranked.priority desc, ranked.turn, ranked.run_at
       limit ${limit}
         for update of job skip locked)
    update job set state = 'open', is_due = false
      from chosen
     where job.job_id = chosen.job_id
    returning to_jsonb(job) as row`);
  return rows.map(withPayload);
}

/** The row of a job, with payload and result. */
export interface WholeRow extends RowWithPayload {
  result: string | undefined;
}

export async function readRow(db: Db, jobId: string): Promise<WholeRow | undefined> {
  const { rows } = await db.query<Selected>(sql`
    select to_jsonb(job) as row from job where job_id = ${jobId}::uuid`);
  return rows[0] && wholeRow(rows[0]);
}

export async function readRowOfRequest(
  db: Db,
  { tenant, requestId }: { tenant: string; requestId: string },
): Promise<WholeRow | undefined> {
  const { rows } = await db.query<Selected>(sql`
    select to_jsonb(job) as row from job where tenant = ${tenant} and request_id = ${requestId}`);
  return rows[0] && wholeRow(rows[0]);
}

export async function readHeads(db: Db, jobs: readonly { jobId: string }[]): Promise<RowHead[]> {
  if (jobs.length === 0) return [];
  const { rows } = await db.query<Selected>(sql`
    select to_jsonb(job) - array['payload', 'result'] as row
      from job where job_id = any (${jobs.map(({ jobId }) => jobId)}::uuid[])`);
  return rows.map(headOf);
}

/** The limit of `tenure_enqueue`, from the settings of the instance that started last. */
export async function writeLimit(db: Db, payloadBytesMax: number): Promise<void> {
  await db.query(sql`
    update job_limit set payload_bytes = ${payloadBytesMax} where payload_bytes <> ${payloadBytesMax}`);
}

/** Deletes ended rows that are older than the history, at most `limit`. True: there may be more. */
export async function forgetRows(
  db: Db,
  { olderThanMs, limit }: { olderThanMs: number; limit: number },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    delete from job
     where job_id = any (array(
             select job_id from job
              where state = 'ended' and ended_at < tenure_now() - make_interval(secs => ${olderThanMs / 1_000}::float8)
              order by ended_at
              limit ${limit}))
       and state = 'ended'`);
  return rowCount === limit;
}

/** As JSON: a `select *` of this release would fail beside a newer one that adds a column. */
interface Selected {
  row: Record<string, unknown>;
}

const idsOf = (rows: readonly { job_id: string }[]): Set<string> =>
  new Set(rows.map(({ job_id }) => job_id));

const byId = (heads: readonly RowHead[]): Map<string, RowHead> =>
  new Map(heads.map((head) => [head.jobId, head]));

const wholeRow = (selected: Selected): WholeRow => ({
  ...withPayload(selected),
  result: textOf(selected.row.result),
});

const withPayload = (selected: Selected): RowWithPayload => ({
  ...headOf(selected),
  payload: String(selected.row.payload),
});

function headOf({ row }: Selected): RowHead {
  return {
    jobId: String(row.job_id),
    tenant: String(row.tenant),
    requestId: String(row.request_id),
    bodyHash: String(row.body_hash),
    pool: String(row.pool),
    priority: Number(row.priority),
    spec: row.spec,
    state: row.state as RowState,
    runAt: timeOf(row.run_at),
    attemptId: Number(row.attempt_id),
    isDecided: row.is_decided === true,
    countedAttempts: Number(row.counted_attempts),
    outcome: textOf(row.outcome) as JobOutcome | undefined,
    error: row.error ?? undefined,
    createdAt: timeOf(row.created_at),
    endedAt: row.ended_at === null ? undefined : timeOf(row.ended_at),
  };
}

const textOf = (value: unknown): string | undefined =>
  typeof value === "string" ? value : undefined;

const timeOf = (value: unknown): Date => parseTimestamp(String(value));

const compare = (a: string, b: string): number => (a < b ? -1 : +(a > b));
