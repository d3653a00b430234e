import type { Actor } from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import { json, sql } from "../store/sql.ts";

export interface NewAuditEntry {
  action: string;
  outcome: string;
  subject: string | undefined;
  actor: Actor;
  instanceId: string;
  details: Record<string, unknown>;
}

export async function appendAudit(db: Db, entry: NewAuditEntry): Promise<void> {
  const { action, outcome, subject, actor, instanceId, details } = entry;
  await db.query(sql`
    insert into audit_entry (action, outcome, subject, actor_name, actor_role, actor_tenant, actor_address, instance_id, details)
    values (${action}, ${outcome}, ${subject ?? null}, ${actor.name}, ${actor.role}, ${actor.tenant},
            ${actor.address}, ${instanceId}, ${json(details)})`);
}

export interface AuditFilter {
  action?: string | undefined;
  actor?: string | undefined;
  subject?: string | undefined;
  /** Only what actors of this tenant did. */
  tenant?: string | undefined;
  /** Only older ones than this id. */
  beforeId?: number | undefined;
  limit: number;
}

export interface AuditRow {
  id: number;
  at: Date;
  action: string;
  outcome: string;
  subject: string | null;
  actor_name: string;
  actor_role: string;
  actor_tenant: string;
  actor_address: string;
  instance_id: string;
  details: Record<string, unknown>;
}

/** Newest first. */
export async function listAudit(db: Db, filter: AuditFilter): Promise<AuditRow[]> {
  const { rows } = await db.query<AuditRow>(sql`
    select id, at, action, outcome, subject, actor_name, actor_role, actor_tenant, actor_address, instance_id, details
      from audit_entry
     where (${filter.action ?? null}::text is null or action = ${filter.action ?? null})
       and (${filter.actor ?? null}::text is null or actor_name = ${filter.actor ?? null})
       and (${filter.subject ?? null}::text is null or subject = ${filter.subject ?? null})
       and (${filter.tenant ?? null}::text is null or actor_tenant = ${filter.tenant ?? null})
       and id < ${filter.beforeId ?? Number.MAX_SAFE_INTEGER}
     order by id desc
     limit ${filter.limit}`);
  return rows;
}

/** Deletes what is older than `days`, and the oldest beyond `entriesMax`. */
export async function forgetOldAudit(
  db: Db,
  { days, entriesMax }: { days: number; entriesMax: number },
): Promise<void> {
  await db.query(sql`
    delete from audit_entry
     where at < tenure_now() - ${days} * interval '1 day'
        or id <= (select id from audit_entry order by id desc offset ${entriesMax} limit 1)`);
}
