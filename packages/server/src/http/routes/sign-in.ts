import { timingSafeEqual } from "node:crypto";
import { TLSSocket } from "node:tls";
import { ROUTES, type Role, TenureError } from "@tenure/protocol";
import type { FastifyRequest } from "fastify";
import type { Authenticator } from "../../access/authenticator.ts";
import type { ConsoleSessions } from "../../access/console-sessions.ts";
import type { Principal } from "../../access/principal.ts";
import type { Audit } from "../../audit/audit.ts";
import type { SignInLimit } from "../../audit/sign-in-limit.ts";
import { tokenSha256 } from "../../config.ts";
import type { Telemetry } from "../../telemetry.ts";
import { actorOf } from "../audited.ts";
import { clientAddress, peerAddress, type TrustedProxies } from "../client-address.ts";
import { endedCookies, sessionCookie, sessionIdsIn } from "../cookie.ts";
import { type Served, serve } from "../route.ts";

/** The roles that may sign in at the console; tokens of other roles are for programs. */
const CONSOLE_ROLES: readonly Role[] = ROUTES.readPrincipal.roles;

export interface AccessOptions {
  authenticator: Authenticator;
  sessions: ConsoleSessions;
  audit: Audit;
  limit: SignInLimit;
  telemetry: Telemetry;
  proxies: TrustedProxies;
  /** `[server] advertise_url`. */
  advertiseUrl: string;
  /** Accepted once in place of its token. */
  signInCode?: { code: string; token: string } | undefined;
}

/** Sign-in for people: a token once, then a session by cookie. */
export function accessRoutes(options: AccessOptions): Served[] {
  const { authenticator, sessions, audit, limit, telemetry } = options;
  const redeem = onceOnly(options.signInCode);

  function refuse(request: FastifyRequest, error: TenureError, token?: string): never {
    const result = error.code === "RATE_LIMITED" ? "slowed" : "failed";
    telemetry.signIns.inc({ result });
    const { method, path } = ROUTES.login;
    const address = clientAddress(request);
    audit.refused({ reason: `sign_in_${result}`, route: `${method} ${path}`, address, token });
    throw error;
  }

  /** Finds the principal of a token. Failed tries are limited per address. */
  async function authenticate(
    request: FastifyRequest,
    given: string,
  ): Promise<{ principal: Principal; secret: string }> {
    const waitMs = limit.waitMs(clientAddress(request));
    if (waitMs > 0) refuse(request, new TenureError("RATE_LIMITED", { retry_after_ms: waitMs }));
    const secret = redeem(given) ?? given;
    const principal = await authenticator.identify(secret);
    if (!principal) {
      limit.failed(clientAddress(request));
      const reason = "unknown token";
      return refuse(request, new TenureError("UNAUTHENTICATED", { reason }));
    }
    if (!CONSOLE_ROLES.includes(principal.role)) {
      const reason = `a token of role ${principal.role} is for programs; sign in as admin or viewer`;
      refuse(request, new TenureError("FORBIDDEN", { reason }), principal.name);
    }
    return { principal, secret };
  }

  return [
    serve(ROUTES.login, async ({ body, request, reply }) => {
      const { principal, secret } = await authenticate(request, body.token);
      // Without tokens no session is needed, and one would outlive the setting.
      if (authenticator.open) return shown(principal);
      const token = { name: principal.name, sha256: tokenSha256(secret) };
      const deed = { action: "console.sign-in", actor: actorOf(principal, request) };
      const id = await audit.run(deed, (act) => sessions.open(token, act));
      telemetry.signIns.inc({ result: "done" });
      const scope = { secure: cameByTls(request, options), host: request.headers.host };
      reply.header("set-cookie", sessionCookie(id, sessions.ageMaxSeconds, scope));
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

/** Exchanges the code for its token, the first time. */
function onceOnly(given: { code: string; token: string } | undefined) {
  let left = given;
  return (text: string): string | undefined => {
    if (!left || !isEqual(text, left.code)) return undefined;
    const { token } = left;
    left = undefined;
    return token;
  };
}

/** Compares digests, which have one length, in constant time. */
const isEqual = (a: string, b: string): boolean =>
  timingSafeEqual(Buffer.from(tokenSha256(a)), Buffer.from(tokenSha256(b)));

/** Without the hash of the token. */
const shown = ({ name, role, tenant, operates = false }: Principal): Principal => ({
  ...{ name, role, tenant, operates },
});

/**
 * Whether the client came over TLS. Behind a proxy this server itself gets plain HTTP. A browser sends the page's `Origin`;
 * for other clients the header of a trusted proxy decides, or else `advertise_url`.
 */
function cameByTls(
  { headers, raw }: FastifyRequest,
  { proxies, advertiseUrl }: Pick<AccessOptions, "proxies" | "advertiseUrl">,
): boolean {
  if (raw.socket instanceof TLSSocket) return true;
  if (headers.origin !== undefined) return headers.origin.startsWith("https://");
  const proto = proxies.includes(peerAddress(raw.socket)) && headers["x-forwarded-proto"];
  return proto ? proto === "https" : advertiseUrl.startsWith("https://");
}
