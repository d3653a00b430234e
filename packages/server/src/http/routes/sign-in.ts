import { timingSafeEqual } from "node:crypto";
import { ROUTES, type Role, TenureError } from "@tenure/protocol";
import type { FastifyRequest } from "fastify";
import type { ConsoleSessions } from "../../access/console-sessions.ts";
import type { Audit } from "../../audit/audit.ts";
import type { SignInLimit } from "../../audit/sign-in-limit.ts";
import { tokenSha256 } from "../../config.ts";
import type { Telemetry } from "../../telemetry.ts";
import { actorOf } from "../audited.ts";
import type { Authenticator, Principal } from "../auth.ts";
import { clientAddress, peerAddress, type TrustedProxies } from "../client-address.ts";
import { endedCookies, sessionCookie, sessionIdsIn } from "../cookie.ts";
import { type Served, serve } from "../route.ts";

/** Whom the console shows something: the others' tokens are for programs. */
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
  /** Taken once in place of its token. */
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

  /** Whose token this is. Guesses are slowed by the address they come from. */
  function authenticate(
    request: FastifyRequest,
    given: string,
  ): { principal: Principal; secret: string } {
    const waitMs = limit.waitMs(clientAddress(request));
    if (waitMs > 0) refuse(request, new TenureError("RATE_LIMITED", { retry_after_ms: waitMs }));
    const secret = redeem(given) ?? given;
    const principal = authenticator.identify(secret);
    if (!principal) {
      limit.failed(clientAddress(request));
      const reason = "this token is not known here";
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
      const { principal, secret } = authenticate(request, body.token);
      // Where no token is needed a session would only outlive that.
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

/** By their digests, which have one length: the time it takes says nothing of the code. */
const isEqual = (a: string, b: string): boolean =>
  timingSafeEqual(Buffer.from(tokenSha256(a)), Buffer.from(tokenSha256(b)));

/** Never the rule itself: it has the hash. */
const shown = ({ name, role, tenant, operates = false }: Principal): Principal => ({
  ...{ name, role, tenant, operates },
});

/**
 * Behind a proxy this server speaks plain HTTP. The browser names the page it signs in from, and with it how it got here; for
 * a client that names none, a trusted proxy or the URL under which this server is known decides.
 */
function cameByTls(
  { headers, raw }: FastifyRequest,
  { proxies, advertiseUrl }: Pick<AccessOptions, "proxies" | "advertiseUrl">,
): boolean {
  if (headers.origin !== undefined) return headers.origin.startsWith("https://");
  const said = proxies.includes(peerAddress(raw.socket)) && headers["x-forwarded-proto"];
  return said ? said === "https" : advertiseUrl.startsWith("https://");
}
