import { ROUTES, TenureError } from "@tenure/protocol";
import type { Scope } from "../../kernel/scope.ts";
import type { Principal } from "../auth.ts";
import { type Served, serve } from "../route.ts";

interface EventRow {
  id: number;
  at: Date;
  event: string;
  code: string | null;
  message: string;
  subject: string | null;
  details: Record<string, unknown>;
}

export interface EventSource {
  list(filter: {
    scope: Scope;
    event: string | undefined;
    code: string | undefined;
    subject: string | undefined;
    beforeId: number | undefined;
    limit: number;
  }): Promise<EventRow[]>;
}

export function eventRoutes(events: EventSource): Served[] {
  return [
    serve(ROUTES.listEvents, async ({ principal, scope, query }) => {
      const { limit, cursor, event, code, subject } = query;
      const rows = await events.list({
        scope,
        event,
        code,
        subject,
        beforeId: parseCursor(cursor),
        limit,
      });
      const last = rows.length === limit ? rows.at(-1) : undefined;
      const items = rows.map((row) => eventShownTo(principal, renderEvent(row)));
      return { items, next_cursor: last ? String(last.id) : null };
    }),
  ];
}

export const renderEvent = ({ id, at, event, code, message, subject, details }: EventRow) => ({
  id,
  at: at.toISOString(),
  event,
  ...(code && { code }),
  message,
  ...(subject && { subject }),
  details,
});

/** What a program wrote before it ended may hold secrets. */
export function eventShownTo<T extends { details: Record<string, unknown> }>(
  { role }: Pick<Principal, "role">,
  event: T,
): T {
  if (role === "admin" || event.details.last_error === undefined) return event;
  const { last_error: _, ...details } = event.details;
  return { ...event, details };
}

function parseCursor(cursor: string | undefined): number | undefined {
  if (cursor === undefined) return undefined;
  if (/^\d{1,15}$/.test(cursor)) return Number(cursor);
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: is not one this server made" });
}
