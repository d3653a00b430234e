import { ROUTES } from "@tenure/protocol";
import type { Principal } from "../../access/principal.ts";
import type { Scope } from "../../kernel/scope.ts";
import { numberCursor, readPage } from "../page.ts";
import { type Served, serve } from "../route.ts";

interface EventRow {
  id: number;
  at: Date;
  event: string;
  code: string | null;
  message: string;
  subject: string | null;
  details: Record<string, unknown>;
  /** The tenants that may see it; empty = operators only. */
  tenants: string[];
}

/** The event table, as the store opens it: edges do not import the store. */
export interface EventSource {
  list(filter: {
    scope: Scope;
    event: string | undefined;
    code: string | undefined;
    subject: string | undefined;
    beforeId: number | undefined;
    limit: number;
  }): Promise<EventRow[]>;
  newestId(): Promise<number>;
  after(id: number): Promise<EventRow[]>;
  onNew(callback: () => void): Promise<void>;
}

export function eventRoutes(events: Pick<EventSource, "list">): Served[] {
  return [
    serve(ROUTES.listEvents, async ({ principal, scope, query }) => {
      const { limit, cursor, event, code, subject } = query;
      const filter = { scope, event, code, subject, beforeId: numberCursor(cursor) };
      const { rows, next_cursor } = await readPage(
        limit,
        (limit) => events.list({ ...filter, limit }),
        (last) => String(last.id),
      );
      return { items: rows.map((row) => eventShownTo(principal, renderEvent(row))), next_cursor };
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

/** The last output of a program may contain secrets: only admins see it. */
export function eventShownTo<T extends { details: Record<string, unknown> }>(
  { role }: Pick<Principal, "role">,
  event: T,
): T {
  if (role === "admin" || event.details.last_error === undefined) return event;
  const { last_error: _, ...details } = event.details;
  return { ...event, details };
}
