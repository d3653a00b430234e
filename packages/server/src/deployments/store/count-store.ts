import type { Scope } from "../../kernel/scope.ts";
import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";

export interface DeploymentCounts {
  enabled: number;
  unassigned: number;
  running: number;
  failing: number;
}

/**
 * Counts the enabled deployments and how many of them run, by the reports of the current term. Reports of absent nodes do
 * not count, and a deployment whose owner is absent counts as failing.
 */
export async function countDeployments(db: Db, { tenants }: Scope): Promise<DeploymentCounts> {
  const { rows } = await db.query<DeploymentCounts>(sql`
    with present as (
      select address from node_unit where online and presence_expires_at > tenure_now()),
    report as (
      select deployment_id,
             bool_or(s.state = 'running') as running,
             bool_or(s.state in ('backoff', 'failed', 'refused')) as failing
        from deployment_status s join deployment d on d.id = s.deployment_id join present on present.address = s.address
       where s.generation = d.generation and d.enabled and (d.type = 'daemon' or d.address = s.address)
       group by deployment_id)
    select count(*)::int as enabled,
           count(*) filter (where type = 'deployment' and deployment.address = '')::int as unassigned,
           count(*) filter (where running and not failing)::int as running,
           count(*) filter (where failing or (type = 'deployment' and deployment.address <> ''
                                              and present.address is null))::int as failing
      from deployment
      left join report on report.deployment_id = deployment.id
      left join present on present.address = deployment.address
     where enabled and tenure_serves(${tenants}::text[], deployment.tenant)`);
  return rows[0]!;
}
