import type { DeploymentState } from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import { json, sql } from "../store/sql.ts";
import type { NodeTerm, Report, StatusRow } from "./deployment-row.ts";

export interface RecordedReport {
  /** The report names the current term, and the caller's connection is the current one. */
  current: boolean;
  name: string;
  type: string;
  generation: number;
  address: string;
  moving_to: string;
  move_state: string;
  /** What this node said before, in the same term. */
  former_state: DeploymentState | null;
}

/**
 * Writes what a node says of a deployment, if it speaks of the current term: of its own row, of one it takes
 * over next, or of a daemon. A field that was left out keeps its value within a term. `undefined`: no such row.
 */
export async function recordReport(
  db: Db,
  { address, epoch }: NodeTerm,
  report: Report,
): Promise<RecordedReport | undefined> {
  const { deployment_id, generation, state, ...fields } = report;
  const given = json(fields); // JSON leaves undefined fields out, which is what "given" means
  const { rows } = await db.query<RecordedReport>(sql`
    with term as (
      select id, name, type, generation, address, moving_to, move_state,
             generation = ${generation}
             and (type = 'daemon' or (type = 'deployment' and ${address} in (address, moving_to)))
             and exists (select from node_unit
                          where node_unit.address = ${address} and epoch = ${epoch} and online) as current
        from deployment where id = ${deployment_id}),
    former as (
      select state from deployment_status
       where deployment_id = ${deployment_id} and address = ${address} and generation = ${generation}),
    said as (select ${given}::jsonb as fields),
    written as (
      insert into deployment_status as held
        (deployment_id, address, state, generation, pid, restarts, exit_code, signal, last_error, spec_hash,
         started_at)
      select id, ${address}, ${state}, ${generation}, (fields ->> 'pid')::int,
             coalesce((fields ->> 'restarts')::int, 0), (fields ->> 'exit_code')::int, fields ->> 'signal',
             fields ->> 'last_error', fields ->> 'spec_hash', (fields ->> 'started_at')::timestamptz
        from term, said where current
      on conflict (deployment_id, address) do update
         set state      = excluded.state,
             generation = excluded.generation,
             pid        = case when (select fields ? 'pid' from said) or held.generation <> excluded.generation
                               then excluded.pid else held.pid end,
             restarts   = case when (select fields ? 'restarts' from said) or held.generation <> excluded.generation
                               then excluded.restarts else held.restarts end,
             exit_code  = case when (select fields ? 'exit_code' from said) or held.generation <> excluded.generation
                               then excluded.exit_code else held.exit_code end,
             signal     = case when (select fields ? 'signal' from said) or held.generation <> excluded.generation
                               then excluded.signal else held.signal end,
             last_error = case when (select fields ? 'last_error' from said) or held.generation <> excluded.generation
                               then excluded.last_error else held.last_error end,
             spec_hash  = case when (select fields ? 'spec_hash' from said) or held.generation <> excluded.generation
                               then excluded.spec_hash else held.spec_hash end,
             started_at = case when (select fields ? 'started_at' from said) or held.generation <> excluded.generation
                               then excluded.started_at else held.started_at end,
             updated_at = tenure_now()
       where held.generation <= excluded.generation)
    select current, name, type, generation, address, moving_to, move_state,
           (select state from former) as former_state
      from term`);
  return rows[0];
}

/** Newest first, of these deployments. */
export async function listStatuses(db: Db, ids: readonly string[]): Promise<StatusRow[]> {
  const { rows } = await db.query<StatusRow>(sql`
    select deployment_id, address, state, generation, pid, restarts, exit_code, signal, last_error, spec_hash,
           started_at, updated_at
      from deployment_status where deployment_id = any(${ids}::uuid[])
     order by deployment_id, updated_at desc, address`);
  return rows;
}

/** What former owners said long ago: nobody reads their logs any more. */
export async function forgetOldStatuses(db: Db): Promise<void> {
  await db.query(sql`
    delete from deployment_status
     using deployment
     where deployment.id = deployment_status.deployment_id
       and deployment.address <> deployment_status.address
       and deployment_status.updated_at < tenure_now() - interval '7 days'`);
}
