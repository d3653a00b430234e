import type { DeploymentTerm } from "@tenure/protocol";
import type { SealedSecret } from "../../secrets/secret-store.ts";
import type { Db } from "../../store/db.ts";
import { sql } from "../../store/sql.ts";
import type { DeploymentRow, NodeTerm } from "../deployment-row.ts";
import { readDeploymentRow } from "./row-reader.ts";

/**
 * The encrypted values that a deployment refers to, for the node that runs it in this term: its owner, or any node that is
 * present and serves the tenant of a daemon. Term and values are read by one statement. `undefined`: the term is over, or the
 * node has another connection now.
 */
export async function readOwnSecrets(
  db: Db,
  { address, epoch }: NodeTerm,
  { id, generation }: DeploymentTerm,
): Promise<{ row: DeploymentRow; sealed: SealedSecret[] } | undefined> {
  const { rows } = await db.query<{ row: Record<string, unknown>; sealed: SealedSecret[] }>(sql`
    with me as (
      select address, tenure_tenants_of(node_unit) as tenants from node_unit
       where address = ${address} and epoch = ${epoch} and online and presence_expires_at > tenure_now()
         and tenure_takes_secrets(node_unit))
    select to_jsonb(deployment) - 'changed_xid' as row,
           (select coalesce(jsonb_agg(jsonb_build_object(
                     'tenant', secret.tenant, 'name', secret.name, 'version', secret.version,
                     'key_id', secret.key_id, 'sealed', encode(secret.sealed, 'base64'))), '[]')
              from secret
             where secret.tenant = deployment.tenant
               and secret.name in (select jsonb_object_keys(deployment.secret_versions))) as sealed
      from deployment join me on tenure_serves(me.tenants, deployment.tenant)
     where deployment.id = ${id} and deployment.generation = ${generation} and deployment.enabled
       and (deployment.type = 'daemon' or (deployment.type = 'deployment' and deployment.address = me.address))`);
  const [found] = rows;
  return found && { row: readDeploymentRow(found.row), sealed: found.sealed };
}
