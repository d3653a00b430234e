import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";

export interface DeploymentCounts {
  enabled: number;
  unassigned: number;
  running: number;
  failing: number;
}

/** What should run, and how much of it does, by what the nodes said in the current term. */
export async function countDeployments(db: Db): Promise<DeploymentCounts> {
  const { rows } = await db.query<DeploymentCounts>(sql`
    with said as (
      select deployment_id,
             bool_or(s.state = 'running') as running,
             bool_or(s.state in ('backoff', 'failed', 'refused')) as failing
        from deployment_status s join deployment d on d.id = s.deployment_id
       where s.generation = d.generation and d.enabled and (d.type = 'daemon' or s.address = d.address)
       group by deployment_id)
    select count(*)::int as enabled,
           count(*) filter (where type = 'deployment' and address = '')::int as unassigned,
           count(*) filter (where running and not failing)::int as running,
           count(*) filter (where failing)::int as failing
      from deployment left join said on said.deployment_id = deployment.id
     where enabled`);
  return rows[0]!;
}
