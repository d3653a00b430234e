import { DEFAULT_TENANT, serves } from "@tenure/protocol";
import { tenantsOf } from "./access/principal.ts";
import type { AuthToken } from "./config/tokens.ts";
import { adoptDeployments, listDeploymentTenants } from "./deployments/store/tenant-store.ts";
import type { Log } from "./kernel/log.ts";
import type { Db } from "./store/db.ts";

/**
 * At start: in a fleet whose only tenant is not `default`, moves deployments from before there were tenants to it. Then logs
 * the tenants whose jobs and deployments no node may run.
 */
export async function checkTenants({
  db,
  log,
  tokens,
}: {
  db: Db;
  log: Log;
  tokens: readonly AuthToken[];
}): Promise<void> {
  const tenants = tenantsOf(tokens);
  const [only] = tenants;
  if (tenants.length === 1 && only && only !== DEFAULT_TENANT) {
    const count = await adoptDeployments(db, only);
    if (count > 0)
      log.info({ event: "tenant.adopted", tenant: only, count }, "deployments moved to the tenant");
  }
  const served = tokens
    .filter(({ role }) => role === "node")
    .flatMap((token) => token.tenants ?? [token.tenant]);
  if (served.length === 0) return;
  const known = new Set([...tenants, ...(await listDeploymentTenants(db))]);
  const unserved = [...known].filter((tenant) => !serves(served, tenant)).sort();
  if (unserved.length > 0)
    log.warn(
      { event: "tenant.unserved", tenants: unserved },
      "no node token serves these tenants: none of their jobs and deployments can run",
    );
}
