import { createHash } from "node:crypto";
import type { Scope } from "../kernel/scope.ts";
import type { Db, PostgresStore } from "./db.ts";
import { json, sql } from "./sql.ts";

export interface NewEvent {
  event: `${string}.${string}`;
  message: string;
  code?: string;
  subject?: string;
  details?: Record<string, unknown>;
}

export interface EventRow {
  id: number;
  at: Date;
  event: string;
  code: string | null;
  message: string;
  subject: string | null;
  details: Record<string, unknown>;
  /** Who sees it; empty = operators only. */
  tenants: string[];
}

export async function appendEvent(
  db: Db,
  { event, message, code, subject, details }: NewEvent,
): Promise<void> {
  await db.query(sql`
    insert into event (event, message, code, subject, details)
    values (${event}, ${message}, ${code ?? null}, ${subject ?? null}, ${json(details ?? {})})`);
}

export interface EventFilter {
  scope: Scope;
  event?: string | undefined;
  code?: string | undefined;
  subject?: string | undefined;
  /** Only older ones than this id. */
  beforeId?: number | undefined;
  limit: number;
}

/** Newest first. */
export async function listEvents(db: Db, filter: EventFilter): Promise<EventRow[]> {
  const { rows } = await db.query<EventRow>(sql`
    select id, at, event, code, message, subject, details, coalesce(tenants, '{default}') as tenants
      from event
     where (tenure_share(tenants, ${filter.scope.tenants}::text[]) or (${filter.scope.operates} and tenants = '{}'))
       and (${filter.event ?? null}::text is null or event = ${filter.event ?? null})
       and (${filter.code ?? null}::text is null or code = ${filter.code ?? null})
       and (${filter.subject ?? null}::text is null or subject = ${filter.subject ?? null})
       and id < ${filter.beforeId ?? Number.MAX_SAFE_INTEGER}
     order by id desc
     limit ${filter.limit}`);
  return rows;
}

export async function forgetOldEvents(db: Db): Promise<void> {
  await db.query(sql`delete from event where at < tenure_now() - interval '30 days'`);
}

/** Stores an event that every instance notices once: the first instance to report it wins. */
export async function appendEventOnce(
  db: Db,
  {
    event,
    message,
    code,
    subject,
    details,
  }: NewEvent & { subject: string; details: Record<string, unknown> },
): Promise<void> {
  const text = json([event, subject, details]);
  const onceKey = createHash("sha256").update(text).digest("base64url");
  await db.query(sql`
    insert into event (event, message, code, subject, details, once_key)
    values (${event}, ${message}, ${code ?? null}, ${subject}, ${json(details)}, ${onceKey})
    on conflict (once_key) where once_key is not null do nothing`);
}

export async function newestEventId(db: Db): Promise<number> {
  const { rows } = await db.query<{ id: number }>(
    sql`select coalesce(max(id), 0)::bigint as id from event`,
  );
  return rows[0]!.id;
}

/** What came after `id`, oldest first; the next look finds the rest. */
export async function eventsAfter(db: Db, id: number): Promise<EventRow[]> {
  const { rows } = await db.query<EventRow>(sql`
    select id, at, event, code, message, subject, details, coalesce(tenants, '{default}') as tenants
      from event where id > ${id} order by id limit 500`);
  return rows;
}

/** The event table for readers outside the stores. */
export const openEvents = (db: PostgresStore) => ({
  list: (filter: EventFilter) => listEvents(db, filter),
  newestId: () => newestEventId(db),
  after: (id: number) => eventsAfter(db, id),
  /** Calls back when an event may be new. */
  onNew: (callback: () => void) => db.listen("tenure_event", callback),
});
