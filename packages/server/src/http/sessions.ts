import { ROUTES, type SessionView, TenureError } from "@tenure/protocol";
import { type Served, serve } from "./route.ts";

export interface SessionsSource {
  list(page: { offset: number; limit: number }): Promise<{ views: SessionView[]; seen: number }>;
}

export function sessionRoutes({ list }: SessionsSource): Served[] {
  return [
    serve(ROUTES.listSessions, async ({ principal, query: { limit, cursor, online } }) => {
      const offset = parseOffset(cursor);
      const { views, seen } = await list({ offset, limit });
      const items = views.filter(
        (view) =>
          view.tenant === principal.tenant && (online === undefined || view.online === online),
      );
      return { items, next_cursor: seen === limit ? String(offset + limit) : null };
    }),
  ];
}

function parseOffset(cursor = "0"): number {
  if (/^\d{1,9}$/.test(cursor)) return Number(cursor);
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: is not one this server made" });
}
