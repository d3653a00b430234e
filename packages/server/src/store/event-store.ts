import type { Db } from "./db.ts";
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
    select id, at, event, code, message, subject, details
      from event
     where (${filter.event ?? null}::text is null or event = ${filter.event ?? null})
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
