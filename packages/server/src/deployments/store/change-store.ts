import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";
import type { DeploymentRow } from "../deployment-row.ts";
import { readDeploymentRow } from "./row-reader.ts";

/** A position in the history of the table: a transaction id of Postgres. */
export type Mark = string;
export const BEGINNING: Mark = "0";

/**
 * Everything written before this mark is seen by a statement that starts after it was read, and everything
 * else is at or after it. A transaction that began early and commits late is not missed that way.
 */
export async function currentMark(db: Db): Promise<Mark> {
  const { rows } = await db.query<{ mark: Mark }>(
    sql`select pg_snapshot_xmin(pg_current_snapshot())::text as mark`,
  );
  return rows[0]!.mark;
}

/** Rows written at or after the mark. A row may come twice; its last form is always among them. */
export async function deploymentsSince(db: Db, mark: Mark): Promise<DeploymentRow[]> {
  const { rows } = await db.query<{ row: Record<string, unknown> }>(sql`
    select to_jsonb(deployment) - 'changed_xid' as row from deployment where changed_xid >= ${mark}::xid8`);
  return rows.map(({ row }) => readDeploymentRow(row));
}

export async function removedSince(db: Db, mark: Mark): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    // Not those that came back under the same id, in a transaction that began earlier.
    sql`select id from deployment_removed as gone
         where changed_xid >= ${mark}::xid8 and not exists (select from deployment where deployment.id = gone.id)`,
  );
  return rows.map(({ id }) => id);
}

export interface ReportedDeployment {
  id: string;
  /** The nodes that refuse to run it. */
  refused_by: string[];
}

/** The deployments with a new report of a node. */
export async function reportedSince(db: Db, mark: Mark): Promise<ReportedDeployment[]> {
  const { rows } = await db.query<ReportedDeployment>(sql`
    select deployment_id as id, coalesce(array_agg(address) filter (where state = 'refused'), '{}') as refused_by
      from deployment_status
     where deployment_id in (select deployment_id from deployment_status where changed_xid >= ${mark}::xid8)
     group by deployment_id`);
  return rows;
}

export async function reportedRefused(db: Db): Promise<ReportedDeployment[]> {
  const { rows } = await db.query<ReportedDeployment>(sql`
    select deployment_id as id, array_agg(address) as refused_by from deployment_status where state = 'refused'
     group by deployment_id`);
  return rows;
}

/** An instance that has not read for a day reads everything anyway. */
export async function forgetRemoved(db: Db): Promise<void> {
  await db.query(
    sql`delete from deployment_removed where removed_at < tenure_now() - interval '1 day'`,
  );
}
