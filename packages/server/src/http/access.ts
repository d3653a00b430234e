import { ROUTES, type Role, TenureError } from "@tenure/protocol";
import type { FastifyRequest } from "fastify";
import type { ConsoleSessions } from "../access/console-sessions.ts";
import { tokenSha256 } from "../config.ts";
import type { Authenticator, Principal } from "./auth.ts";
import { endedCookies, sessionCookie, sessionIdsIn } from "./cookie.ts";
import { type Served, serve } from "./route.ts";

/** Whom the console shows something: the others' tokens are for programs. */
const CONSOLE_ROLES: readonly Role[] = ROUTES.readPrincipal.roles;

export interface AccessOptions {
  authenticator: Authenticator;
  sessions: ConsoleSessions;
  /** `[server] advertise_url`. */
  advertiseUrl: string;
}

/** Sign-in for people: a token once, then a session by cookie. */
export function accessRoutes({ authenticator, sessions, advertiseUrl }: AccessOptions): Served[] {
  return [
    serve(ROUTES.login, async ({ body, request, reply }) => {
      const principal = authenticator.identify(body.token);
      if (!principal)
        throw new TenureError("UNAUTHENTICATED", { reason: "this token is not known here" });
      if (!CONSOLE_ROLES.includes(principal.role)) {
        const reason = `a token of role ${principal.role} is for programs; sign in as admin or viewer`;
        throw new TenureError("FORBIDDEN", { reason });
      }
      // Where no token is needed a session would only outlive that.
      if (!authenticator.open) {
        const id = await sessions.open({ name: principal.name, sha256: tokenSha256(body.token) });
        const scope = { secure: cameByTls(request, advertiseUrl), host: request.headers.host };
        reply.header("set-cookie", sessionCookie(id, sessions.ageMaxSeconds, scope));
      }
      return shown(principal);
    }),
    serve(ROUTES.logout, async ({ request, reply }) => {
      const { cookie, host } = request.headers;
      await sessions.end(sessionIdsIn(cookie, host));
      reply.header("set-cookie", endedCookies(cookie));
      reply.code(204);
      return undefined;
    }),
    serve(ROUTES.readPrincipal, async ({ principal }) => shown(principal)),
  ];
}

/** Never the rule itself: it has the hash. */
const shown = ({ name, role, tenant }: Principal): Principal => ({ name, role, tenant });

/**
 * Behind a proxy this server speaks plain HTTP. The browser names the page it signs in from, and with it how it got here; for
 * a client that names none, a trusted proxy or the URL under which this server is known decides.
 */
function cameByTls({ headers, protocol }: FastifyRequest, advertiseUrl: string): boolean {
  if (headers.origin !== undefined) return headers.origin.startsWith("https://");
  return protocol === "https" || advertiseUrl.startsWith("https://");
}
