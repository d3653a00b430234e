import { ANY_TENANT, type AuditRecord, ROUTES, TenureError } from "@tenure/protocol";
import type { Audit } from "../../audit/audit.ts";
import type { AuditRow } from "../../audit/audit-store.ts";
import { type Served, serve } from "../route.ts";
import { tenantOf } from "../scope.ts";

export function auditRoutes(audit: Pick<Audit, "list">): Served[] {
  return [
    serve(ROUTES.listAudit, async ({ scope, query }) => {
      const { limit, cursor, ...filter } = query;
      const tenant = tenantOf(scope);
      const rows = await audit.list({
        ...filter,
        tenant: tenant === ANY_TENANT ? undefined : tenant,
        beforeId: parseCursor(cursor),
        limit,
      });
      const last = rows.length === limit ? rows.at(-1) : undefined;
      return { items: rows.map(renderEntry), next_cursor: last ? String(last.id) : null };
    }),
  ];
}

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

function parseCursor(cursor: string | undefined): number | undefined {
  if (cursor === undefined) return undefined;
  if (/^\d{1,15}$/.test(cursor)) return Number(cursor);
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: invalid" });
}
