import { ROUTES, type Role, TenureError } from "@tenure/protocol";
import type { FastifyRequest } from "fastify";
import type { Authenticator, Principal } from "./auth.ts";
import { cookieWith, endedCookie } from "./cookie.ts";
import { type Served, serve } from "./route.ts";

/** Whom the console shows something: the others' tokens are for programs. */
const CONSOLE_ROLES: readonly Role[] = ROUTES.readPrincipal.roles;

/** Sign-in for people: a token once, then a cookie. */
export function accessRoutes(authenticator: Authenticator): Served[] {
  return [
    serve(ROUTES.login, async ({ body, request, reply }) => {
      const principal = authenticator.identify(body.token);
      if (!principal)
        throw new TenureError("UNAUTHENTICATED", { reason: "this token is not known here" });
      if (!CONSOLE_ROLES.includes(principal.role)) {
        const reason = `a token of role ${principal.role} is for programs; sign in as admin or viewer`;
        throw new TenureError("FORBIDDEN", { reason });
      }
      // Where nobody needs a token a cookie would only outlive that.
      if (!authenticator.open) {
        reply.header("set-cookie", cookieWith(body.token, { secure: isEncrypted(request) }));
      }
      return shown(principal);
    }),
    serve(ROUTES.logout, async ({ request, reply }) => {
      reply.header("set-cookie", endedCookie({ secure: isEncrypted(request) }));
      reply.code(204);
      return undefined;
    }),
    serve(ROUTES.readPrincipal, async ({ principal }) => shown(principal)),
  ];
}

/** Never the rule itself: it has the hash. */
const shown = ({ name, role, tenant }: Principal): Principal => ({ name, role, tenant });

/** Behind a proxy this server speaks plain HTTP; the browser says how it got here. */
const isEncrypted = ({ headers }: FastifyRequest): boolean =>
  headers.origin?.startsWith("https://") ?? false;
