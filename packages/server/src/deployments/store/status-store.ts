import type { DeploymentState, FieldIssue } from "@tenure/protocol";
import type { Db } from "../../store/db.ts";
import { json, sql } from "../../store/sql.ts";
import type { NodeTerm, Report, StatusRow } from "../deployment-row.ts";
import { readStatusRow } from "./row-reader.ts";

export interface RecordedReport {
  /** The report names the current term, and the caller's connection is the current one. */
  current: boolean;
  name: string;
  type: string;
  address: string;
  moving_to: string;
  move_state: string;
  /** The node's former report in the same term. */
  former_state: DeploymentState | null;
  /** That report was `running`, and is more than a minute old. */
  was_stable: boolean;
}

/**
 * Stores a report of the current term: about a deployment that the node owns or takes over next, or about a daemon. An
 * omitted field keeps its value within a term. Resolves to undefined when the node serves no such deployment.
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
      select id, tenure_deployment_name(deployment) as name, type, revision, address, moving_to, move_state,
             generation = ${generation}
             and (type = 'daemon' or (type = 'deployment' and ${address} in (address, moving_to)))
             and exists (select from node_unit
                          where node_unit.address = ${address} and epoch = ${epoch} and online) as current
        from deployment
       where id = ${deployment_id}
         and exists (select from node_unit
                      where node_unit.address = ${address}
                        and tenure_serves(tenure_tenants_of(node_unit), deployment.tenant))),
    former as (
      select state, state = 'running' and updated_at <= tenure_now() - interval '1 minute' as stable
        from deployment_status
       where deployment_id = ${deployment_id} and address = ${address} and generation = ${generation}),
    report as (select ${given}::jsonb as fields),
    written as (
      insert into deployment_status as stored
        (deployment_id, address, state, generation, pid, restarts, exit_code, signal, last_error, spec_hash,
         started_at, lost_after_ms, refused_revision, refused_traits)
      select id, ${address}, ${state}, ${generation}, (fields ->> 'pid')::int,
             coalesce((fields ->> 'restarts')::int, 0), (fields ->> 'exit_code')::int, fields ->> 'signal',
             fields ->> 'last_error', fields ->> 'spec_hash', (fields ->> 'started_at')::timestamptz,
             (fields ->> 'lost_after_ms')::int,
             case when ${state} = 'refused' then revision end,
             case when ${state} = 'refused' then
               (select tenure_node_traits(node_unit) from node_unit where node_unit.address = ${address}) end
        from term, report where current
      on conflict (deployment_id, address) do update
         set state            = excluded.state,
             generation       = excluded.generation,
             refused_revision = excluded.refused_revision,
             refused_traits   = excluded.refused_traits,
             pid        = case when (select fields ? 'pid' from report) or stored.generation <> excluded.generation
                               then excluded.pid else stored.pid end,
             restarts   = case when (select fields ? 'restarts' from report) or stored.generation <> excluded.generation
                               then excluded.restarts else stored.restarts end,
             exit_code  = case when (select fields ? 'exit_code' from report) or stored.generation <> excluded.generation
                               then excluded.exit_code else stored.exit_code end,
             signal     = case when (select fields ? 'signal' from report) or stored.generation <> excluded.generation
                               then excluded.signal else stored.signal end,
             last_error = case when (select fields ? 'last_error' from report) or stored.generation <> excluded.generation
                               then excluded.last_error else stored.last_error end,
             spec_hash  = case when (select fields ? 'spec_hash' from report) or stored.generation <> excluded.generation
                               then excluded.spec_hash else stored.spec_hash end,
             started_at = case when (select fields ? 'started_at' from report) or stored.generation <> excluded.generation
                               then excluded.started_at else stored.started_at end,
             lost_after_ms = case when (select fields ? 'lost_after_ms' from report) or stored.generation <> excluded.generation
                                  then excluded.lost_after_ms else stored.lost_after_ms end,
             updated_at = tenure_now()
       -- No term is beyond 2^53: one that is was written by SQL, and would keep every report out.
       where stored.generation <= excluded.generation or stored.generation > 9007199254740991)
    select current, name, type, address, moving_to, move_state,
           (select state from former) as former_state, coalesce((select stable from former), false) as was_stable
      from term`);
  return rows[0];
}

export interface ListedStatuses {
  statuses: StatusRow[];
  /** Rows that cannot be read. */
  skipped: { deployment_id: string; address: string; issues: FieldIssue[] }[];
}

/**
 * Newest first, of these deployments. Without the reports of nodes that do not serve the deployment's tenant: it was moved, or
 * the node's token was changed. Such a node is no business of the tenant, and must get no call about the deployment.
 */
export async function listStatuses(db: Db, ids: readonly string[]): Promise<ListedStatuses> {
  const { rows } = await db.query<{
    deployment_id: string;
    address: string;
    row: Record<string, unknown>;
  }>(sql`
    select deployment_id, left(address, 256) as address, to_jsonb(deployment_status) as row
      from deployment_status
     where deployment_id = any(${ids}::uuid[])
       and not exists (select from node_unit, deployment
                        where node_unit.address = deployment_status.address
                          and deployment.id = deployment_status.deployment_id
                          and not tenure_serves(tenure_tenants_of(node_unit), deployment.tenant))
     order by deployment_id, updated_at desc, address`);
  const read = rows.map(({ row, ...of }) => ({ ...of, ...readStatusRow(row) }));
  return {
    statuses: read.flatMap(({ row }) => row ?? []),
    skipped: read.flatMap(({ deployment_id, address, ...of }) =>
      "invalid" in of ? [{ deployment_id, address, issues: of.invalid }] : [],
    ),
  };
}

/**
 * Deletes old reports of former owners. A daemon has no owner: a report about it is deleted when its node has been away for
 * as long, however old it is, because an agent reports again only when something changes.
 */
export async function forgetOldStatuses(db: Db): Promise<void> {
  await db.query(sql`
    delete from deployment_status
     using deployment
     where deployment.id = deployment_status.deployment_id
       and deployment_status.updated_at < tenure_now() - interval '7 days'
       and case deployment.type
             when 'daemon' then not exists (
               select from node_unit
                where node_unit.address = deployment_status.address
                  and case when online then presence_expires_at else left_at end
                      >= tenure_now() - interval '7 days')
             else deployment.address <> deployment_status.address end`);
}

/** Forgets the `lost_after_ms` that the owner reported: from now on only the row's value counts. */
export async function forgetLostAfter(db: Db, id: string): Promise<void> {
  await db.query(sql`
    update deployment_status set lost_after_ms = null
      from deployment
     where deployment.id = ${id} and deployment_status.deployment_id = ${id}
       and deployment_status.address = deployment.address`);
}
