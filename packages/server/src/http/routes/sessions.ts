import { ROUTES, type SessionView, serves } from "@tenure/protocol";
import type { Sessions } from "../../membership/sessions.ts";
import type { CallerOf } from "../job-callers.ts";
import { numberCursor } from "../page.ts";
import { type Served, serve } from "../route.ts";

/** A cursor is an offset. */
const OFFSET_MAX = 999_999_999;

export function sessionRoutes({ list }: Pick<Sessions, "list">, callerOf: CallerOf): Served[] {
  return [
    serve(ROUTES.listSessions, async ({ query: { limit, cursor, online }, ...by }) => {
      const offset = numberCursor(cursor, OFFSET_MAX) ?? 0;
      const { views, seen } = await list({ offset, limit });
      const caller = callerOf(by);
      const items = views
        .filter(
          (view) =>
            serves([caller.tenant], view.tenant) &&
            (caller.token === undefined || view.token === caller.token) &&
            (online === undefined || view.online === online),
        )
        // The name of the token that opened the session is not shown.
        .map(({ token: _, ...view }): SessionView => view);
      return { items, next_cursor: seen === limit ? String(offset + limit) : null };
    }),
  ];
}
