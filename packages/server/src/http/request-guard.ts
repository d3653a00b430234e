import type { Socket } from "node:net";
import { isTenureError, mayCall, type Route, TenureError } from "@tenure/protocol";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Authenticator } from "../access/authenticator.ts";
import type { ConsoleSessions } from "../access/console-sessions.ts";
import { ANONYMOUS, type Principal } from "../access/principal.ts";
import type { TokenWatches } from "../access/token-watches.ts";
import type { Audit } from "../audit/audit.ts";
import { FORWARDED_HEADER } from "../peers/peer-client.ts";
import type { Telemetry } from "../telemetry.ts";
import { bearerOf } from "./auth.ts";
import { clientAddress } from "./client-address.ts";
import type { Connections } from "./connections.ts";
import { sessionIdsIn } from "./cookie.ts";
import { type HostGuard, hasTwoHosts } from "./hosts.ts";

export interface RequestGuardOptions {
  telemetry: Telemetry;
  authenticator: Authenticator;
  watches: Pick<TokenWatches, "watch">;
  sessions: ConsoleSessions;
  audit: Audit;
  guard: HostGuard;
  connections: Connections;
  /** Whether the client has presented the certificate that other instances need here. */
  certified: (socket: Socket) => boolean;
}

export interface RequestGuard {
  /** Throws for a request of a foreign host or origin, or one that a page of another site could send. */
  check(request: FastifyRequest): void;
  /** Finds the principal of a request and throws when it may not call the route. */
  admit(route: Route, request: FastifyRequest): Promise<Principal>;
  /** Ends a stream when the token or the session that opened it ends. While it is open, the session is in use. */
  endWithCaller(request: FastifyRequest, reply: FastifyReply): void;
}

interface Rejection {
  /** The label of `tenure_http_refused_total`. */
  reason: "host" | "origin" | "content_type" | "cookie" | "role" | "token" | "certificate";
  error: TenureError;
  token?: string | undefined;
}

/** Decides who sends a request and whether it is served, before a byte of its body is read. */
export function createRequestGuard(options: RequestGuardOptions): RequestGuard {
  const { authenticator, sessions, audit, guard, connections, telemetry } = options;

  function reject(request: FastifyRequest, { reason, error, token }: Rejection): never {
    telemetry.refusedRequests.inc({ reason });
    const route = `${request.method} ${request.routeOptions.url ?? "none"}`;
    audit.refused({ reason, route, address: clientAddress(request), token });
    throw error;
  }

  function check(request: FastifyRequest): void {
    const { host, origin } = request.headers;
    if (hasTwoHosts(request.raw))
      reject(request, { reason: "host", error: invalid("a request must have one Host header") });
    if (!guard.hostAllowed(host) && !isProbe(request)) {
      const error = forbidden(`this server is not known as ${shown(host)}`);
      reject(request, { reason: "host", error });
    }
    if (!guard.originAllowed(origin, host ?? "")) {
      const error = forbidden(`pages of ${shown(origin)} may not call this server`);
      reject(request, { reason: "origin", error });
    }
    if (!isRead(request) && !isJson(request) && !isEmptyWithBearer(request)) {
      const error = invalid(
        "a request that changes something needs content-type: application/json",
      );
      reject(request, { reason: "content_type", error });
    }
  }

  async function admit(route: Route, request: FastifyRequest): Promise<Principal> {
    const ids = authenticator.open ? [] : sessionIdsOf(request);
    if (ids.length > 0 && !isRead(request) && request.headers.origin === undefined) {
      const error = forbidden("a cookie changes something only for a page of this server");
      reject(request, { reason: "cookie", error });
    }
    const principal = ids.length > 0 ? await bySession(route, ids) : await byToken(route, request);
    if (principal) connections.proved(request.raw.socket);
    else connections.askedWithoutToken(request.raw.socket);
    checkForwarding(principal, request);
    if (mayCall(route, principal?.role)) return principal ?? ANONYMOUS;
    if (principal) {
      const error = forbidden(`role ${principal.role} may not call ${route.method} ${route.path}`);
      return reject(request, { reason: "role", error, token: principal.name });
    }
    const error = new TenureError("UNAUTHENTICATED", { reason: "a valid bearer token is needed" });
    return reject(request, { reason: "token", error });
  }

  /** The token of a child whose term is over is refused with that reason. */
  async function byToken(route: Route, request: FastifyRequest): Promise<Principal | undefined> {
    const finding = authenticator.identify(bearerOf(request.headers.authorization));
    // A public route must answer without Postgres too.
    if (route.roles === "public") return finding.catch(() => undefined);
    return finding.catch((error: unknown) => {
      if (!isTenureError(error, "UNAUTHENTICATED")) throw error;
      return reject(request, { reason: "token", error });
    });
  }

  /** Role and tenant are those of the token as it is configured now: without the token the session is over. */
  async function bySession(route: Route, ids: string[]): Promise<Principal | undefined> {
    const finding = sessions.find(ids);
    // A public route must answer without Postgres too.
    const token = await (route.roles === "public" ? finding.catch(() => undefined) : finding);
    return token && authenticator.configured(token);
  }

  /** Only the peer token may mark a request as forwarded, and it is valid for forwarded requests only. */
  function checkForwarding(principal: Principal | undefined, request: FastifyRequest): void {
    const { headers } = request;
    const isPeer = authenticator.open || principal?.role === "peer";
    if (
      isPeer &&
      headers[FORWARDED_HEADER] !== undefined &&
      !options.certified(request.raw.socket)
    ) {
      const error = forbidden(
        "requests between instances need a client certificate that server.tls.client_ca_file accepts",
      );
      reject(request, { reason: "certificate", error, token: principal?.name });
    }
    if (authenticator.open) return;
    if (principal?.role !== "peer") delete headers[FORWARDED_HEADER];
    else if (headers[FORWARDED_HEADER] === undefined) {
      const error = forbidden("role peer is for requests that an instance forwards");
      reject(request, { reason: "role", error, token: principal.name });
    }
  }

  function endWithCaller(request: FastifyRequest, { raw }: FastifyReply): void {
    const end = () => void raw.destroy();
    raw.once("close", options.watches.watch(request.principal, end, { withOperates: true }));
    const ids = authenticator.open ? [] : sessionIdsOf(request);
    if (ids.length === 0) return;
    const checkSession = () =>
      sessions.find(ids).then(
        (token) => token ?? raw.destroy(),
        () => {}, // Unknown without Postgres; the next check reads again.
      );
    const checks = setInterval(checkSession, SESSION_CHECK_MS);
    checks.unref();
    raw.once("close", () => clearInterval(checks));
  }

  return { check, admit, endWithCaller };
}

const SESSION_CHECK_MS = 5_000;

/**
 * A token in a header comes from the caller and takes precedence. A cookie is sent by the browser for any page; on a write
 * every browser names that page in `Origin`, which `check` has compared by then.
 */
const sessionIdsOf = ({ headers }: FastifyRequest): string[] =>
  headers.authorization === undefined ? sessionIdsIn(headers.cookie, headers.host) : [];

const forbidden = (reason: string): TenureError => new TenureError("FORBIDDEN", { reason });
const invalid = (reason: string): TenureError => new TenureError("INVALID_REQUEST", { reason });
const shown = (text: string | undefined): string => JSON.stringify((text ?? "").slice(0, 100));
const isRead = (request: FastifyRequest): boolean =>
  ["GET", "HEAD", "OPTIONS"].includes(request.method);
const isJson = (request: FastifyRequest): boolean =>
  /^application\/json\s*(;|$)/i.test(request.headers["content-type"] ?? "");
/**
 * The content type keeps out pages of other sites: they cannot send JSON without a preflight, nor a bearer token. So a
 * write with a bearer token and no body needs no content type. Cookies and `Basic` are sent by the browser and do not count.
 */
const isEmptyWithBearer = ({ headers }: FastifyRequest): boolean =>
  bearerOf(headers.authorization) !== undefined &&
  headers["content-type"] === undefined &&
  headers["transfer-encoding"] === undefined &&
  Number(headers["content-length"] ?? 0) === 0;
/** Load balancers check health without a `Host`. Every browser sends one, so a page with a foreign name gets nothing. */
const isProbe = ({ headers, routeOptions }: FastifyRequest): boolean =>
  !headers.host && (routeOptions.url?.startsWith("/health/") ?? false);
