import { ROUTES } from "@tenure/protocol";
import type { Secrets } from "../../secrets/secrets.ts";
import { invalidCursor, readPage } from "../page.ts";
import { type Served, serve } from "../route.ts";
import { tenantToWrite } from "../scope.ts";

/** No answer of these routes has a value. */
export function secretRoutes(secrets: Secrets): Served[] {
  return [
    serve(ROUTES.listSecrets, async ({ scope: { tenants }, query: { limit, cursor } }) => {
      const after = readCursor(cursor);
      const { rows, next_cursor } = await readPage(
        limit,
        (count) => secrets.list({ tenants, after, limit: count }),
        cursorOf,
      );
      return { items: rows, next_cursor };
    }),
    serve(ROUTES.setSecret, async ({ scope, params: { name }, body, act }) => {
      const tenant = tenantToWrite(scope, body.tenant);
      return secrets.set({ act }, { tenant, name, value: body.value });
    }),
    serve(ROUTES.removeSecret, async ({ scope, params: { name }, query, reply, act }) => {
      const { force = false } = query;
      await secrets.remove({ act }, { tenant: tenantToWrite(scope), name, force });
      reply.code(204);
      return undefined;
    }),
    serve(ROUTES.rotateSecrets, async ({ scope: { tenants }, query: { limit, cursor } }) => {
      const after = readCursor(cursor);
      const { last, ...done } = await secrets.rotate({ tenants, after, limit });
      return { ...done, next_cursor: last ? cursorOf(last) : null };
    }),
  ];
}

/** Neither has a space. */
const cursorOf = ({ tenant, name }: { tenant: string; name: string }): string =>
  `${tenant} ${name}`;

function readCursor(cursor: string | undefined): readonly [string, string] | undefined {
  if (cursor === undefined) return undefined;
  const [tenant, name, ...rest] = cursor.split(" ");
  if (!tenant || !name || rest.length > 0) throw invalidCursor();
  return [tenant, name];
}
