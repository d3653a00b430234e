import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";

/** The tenants that deployments belong to. */
export async function listDeploymentTenants(db: Db): Promise<string[]> {
  const { rows } = await db.query<{ tenant: string }>(
    sql`select distinct tenant from deployment order by tenant`,
  );
  return rows.map(({ tenant }) => tenant);
}

/**
 * Moves the deployments of `default` to this tenant while no tenant has any: they were written before deployments had
 * tenants. Answers how many.
 */
export async function adoptDeployments(db: Db, tenant: string): Promise<number> {
  const { rowCount } = await db.query(sql`
    update deployment set tenant = ${tenant}
     where tenant = 'default' and not exists (select from deployment as other where other.tenant <> 'default')`);
  return rowCount;
}
