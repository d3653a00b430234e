import { ANY_TENANT, type AuditRecord, ROUTES } from "@tenure/protocol";
import type { Audit } from "../../audit/audit.ts";
import { numberCursor, readPage } from "../page.ts";
import { type Served, serve } from "../route.ts";
import { tenantOf } from "../scope.ts";

export function auditRoutes(audit: Pick<Audit, "list">): Served[] {
  return [
    serve(ROUTES.listAudit, async ({ scope, query }) => {
      const { limit, cursor, ...filter } = query;
      const tenant = tenantOf(scope);
      const only = tenant === ANY_TENANT ? undefined : tenant;
      const beforeId = numberCursor(cursor);
      const { rows, next_cursor } = await readPage(
        limit,
        (limit) => audit.list({ ...filter, tenant: only, beforeId, limit }),
        (last) => String(last.id),
      );
      return { items: rows.map(renderEntry), next_cursor };
    }),
  ];
}

type AuditRow = Awaited<ReturnType<Audit["list"]>>[number];

const renderEntry = (row: AuditRow): AuditRecord => ({
  id: row.id,
  at: row.at.toISOString(),
  action: row.action,
  outcome: row.outcome,
  ...(row.subject !== null && { subject: row.subject }),
  actor: {
    name: row.actor_name,
    role: row.actor_role,
    tenant: row.actor_tenant,
    address: row.actor_address,
  },
  instance_id: row.instance_id,
  details: row.details,
});
