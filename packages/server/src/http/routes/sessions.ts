import { ROUTES, type SessionView, serves } from "@tenure/protocol";
import type { Sessions } from "../../membership/sessions.ts";
import { ID_START_LENGTH, type ListPosition } from "../../membership/store/session-list.ts";
import type { CallerOf } from "../job-callers.ts";
import { invalidCursor } from "../page.ts";
import { type Served, serve } from "../route.ts";

const CURSOR = new RegExp(`^(\\d{1,15})-([A-Za-z0-9_-]{1,${ID_START_LENGTH}})$`);

export function sessionRoutes({ list }: Pick<Sessions, "list">, callerOf: CallerOf): Served[] {
  return [
    serve(ROUTES.listSessions, async ({ query: { limit, cursor, online }, ...by }) => {
      const caller = callerOf(by);
      const { views, next } = await list({
        limit,
        after: cursor === undefined ? undefined : parseCursor(cursor),
        isSeen: ({ tenant, token }) =>
          serves([caller.tenant], tenant) && (caller.token === undefined || token === caller.token),
        online,
      });
      // The name of the token that opened the session is not shown.
      const items = views.map(({ token: _, ...view }): SessionView => view);
      return { items, next_cursor: next ? `${next.atMs}-${next.idStart}` : null };
    }),
  ];
}

function parseCursor(cursor: string): ListPosition {
  const [, atMs, idStart] = CURSOR.exec(cursor) ?? [];
  if (!atMs || !idStart) throw invalidCursor();
  return { atMs: Number(atMs), idStart };
}
