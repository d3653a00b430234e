import type { Socket } from "node:net";
import { ROUTES, TenureError, TokenId } from "@tenure/protocol";
import type { NodeEnrolment } from "../../access/node-enrolment.ts";
import type { TokenAdmin } from "../../access/token-admin.ts";
import type { Act } from "../../audit/actor.ts";
import type { Audit } from "../../audit/audit.ts";
import { clientAddress } from "../client-address.ts";
import { invalidCursor, readPage } from "../page.ts";
import { type Call, type Served, serve } from "../route.ts";
import { tenantOf, tenantToWrite } from "../scope.ts";

export function tokenRoutes(tokens: TokenAdmin): Served[] {
  return [
    serve(ROUTES.listTokens, async ({ scope, query }) => {
      const { limit, cursor: fromId, name, live = false } = query;
      if (fromId !== undefined && !TokenId.safeParse(fromId).success) throw invalidCursor();
      const filter = { tenant: tenantOf(scope), name, live, fromId };
      const { rows, next_cursor } = await readPage(
        limit,
        (limit) => tokens.list({ ...filter, limit }),
        (_, next) => next.id,
      );
      return { items: rows, next_cursor };
    }),
    serve(ROUTES.createToken, async (call) => {
      const { tenant } = call.body;
      const own = tenantOf(call.scope);
      // A token of all tenants is made by one; without a name it is of the default tenant, as in the settings.
      return tokens.create(call.body, tenant === "*" ? tenant : tenantToWrite(call.scope, tenant), {
        ...writeOf(call),
        tenant: own,
      });
    }),
    serve(ROUTES.readToken, ({ scope, params }) => tokens.read(params.id, tenantOf(scope))),
    serve(ROUTES.revokeToken, (call) => tokens.revoke(call.params.id, writeOf(call))),
    serve(ROUTES.rotateToken, (call) => tokens.rotate(call.params.id, call.body, writeOf(call))),
  ];
}

const NO_CERTIFICATE = "a node needs a client certificate that server.tls.client_ca_file accepts";

/** `certified`: whether a connection has the certificate that the server requires of nodes. */
export function enrolRoutes(
  nodes: NodeEnrolment,
  audit: Audit,
  certified: (socket: Socket) => boolean,
): Served[] {
  const { method, path } = ROUTES.enrolNode;
  const refused = (reason: "token" | "certificate", address: string) =>
    audit.refused({ reason, route: `${method} ${path}`, address });
  return [
    serve(ROUTES.enrolNode, async ({ body, request }) => {
      const address = clientAddress(request);
      // Before the join token is used up: this node could not connect.
      if (!certified(request.raw.socket)) {
        refused("certificate", address);
        throw new TenureError("UNAUTHENTICATED", { reason: NO_CERTIFICATE });
      }
      const join = await nodes.joinTokenOf(body).catch((error: unknown) => {
        if (error instanceof TenureError && error.code === "UNAUTHENTICATED")
          refused("token", address);
        throw error;
      });
      const name = "problem" in join.rule ? join.id : join.rule.name;
      const actor = { name, role: "node" as const, tenant: join.tenant, address };
      return audit.run({ action: "token.enrol", actor, subject: body.address }, (act) =>
        nodes.enrol(join, body, act),
      );
    }),
  ];
}

const writeOf = ({ principal, scope, act }: Pick<Call<never>, "principal" | "scope" | "act">) => ({
  principal,
  tenant: tenantOf(scope),
  act: act as Act | undefined,
});
