import { ROUTES, type SessionView, serves, TenureError } from "@tenure/protocol";
import type { CallerOf } from "../job-callers.ts";
import { type Served, serve } from "../route.ts";

export interface SessionsSource {
  list(page: { offset: number; limit: number }): Promise<{ views: ListedView[]; seen: number }>;
}

/** With the name of the token that opened it, which is not shown. */
type ListedView = SessionView & { token?: string | undefined };

export function sessionRoutes({ list }: SessionsSource, callerOf: CallerOf): Served[] {
  return [
    serve(ROUTES.listSessions, async ({ query: { limit, cursor, online }, ...by }) => {
      const offset = parseOffset(cursor);
      const { views, seen } = await list({ offset, limit });
      const caller = callerOf(by);
      const items = views
        .filter(
          (view) =>
            serves([caller.tenant], view.tenant) &&
            (caller.token === undefined || view.token === caller.token) &&
            (online === undefined || view.online === online),
        )
        .map(({ token: _, ...view }): SessionView => view);
      return { items, next_cursor: seen === limit ? String(offset + limit) : null };
    }),
  ];
}

function parseOffset(cursor = "0"): number {
  if (/^\d{1,9}$/.test(cursor)) return Number(cursor);
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: is not one this server made" });
}
