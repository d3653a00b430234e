import { ROUTES, TenureError } from "@tenure/protocol";
import { type Served, serve } from "./route.ts";

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
    event: string | undefined;
    code: string | undefined;
    subject: string | undefined;
    beforeId: number | undefined;
    limit: number;
  }): Promise<EventRow[]>;
}

export function eventRoutes(events: EventSource): Served[] {
  return [
    serve(ROUTES.listEvents, async ({ query: { limit, cursor, event, code, subject } }) => {
      const rows = await events.list({
        event,
        code,
        subject,
        beforeId: parseCursor(cursor),
        limit,
      });
      const last = rows.length === limit ? rows.at(-1) : undefined;
      return { items: rows.map(renderEvent), next_cursor: last ? String(last.id) : null };
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

function parseCursor(cursor: string | undefined): number | undefined {
  if (cursor === undefined) return undefined;
  if (/^\d{1,15}$/.test(cursor)) return Number(cursor);
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: is not one this server made" });
}
