import { mayCall, type Route, SSE_TYPE, TenureError } from "@tenure/protocol";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { ConsoleSessions } from "../access/console-sessions.ts";
import type { Audit } from "../audit/audit.ts";
import { type Config, isWildcard } from "../config.ts";
import type { Log } from "../kernel/log.ts";
import { FORWARDED_HEADER } from "../peers/peer-client.ts";
import type { Telemetry } from "../telemetry.ts";
import { deedOf } from "./audited.ts";
import { ANYBODY, type Authenticator, bearerOf, type Principal } from "./auth.ts";
import { clientAddress, recordClientAddress, type TrustedProxies } from "./client-address.ts";
import type { Connections } from "./connections.ts";
import { sessionIdsIn } from "./cookie.ts";
import { notFound, renderFailure } from "./failure.ts";
import { type HostGuard, hasTwoHosts } from "./hosts.ts";
import type { Served } from "./route.ts";
import { describeApi } from "./routes/openapi.ts";
import type { Site } from "./site.ts";

export interface HttpOptions {
  config: Config;
  log: Log;
  telemetry: Telemetry;
  authenticator: Authenticator;
  sessions: ConsoleSessions;
  audit: Audit;
  guard: HostGuard;
  proxies: TrustedProxies;
  connections: Connections;
  served: Served[];
  site: Site;
}

/** The HTTP edge: who is asking is settled here, once, for every route; the rest is one call to the domain. */
export function createHttp({
  config,
  log,
  telemetry,
  authenticator,
  sessions,
  audit,
  guard,
  proxies,
  connections,
  served,
  site,
}: HttpOptions): FastifyInstance {
  const bodyBytesMax = config.limits.ws_frame_bytes;
  const requestLimitMs = config.server.request_timeout_seconds * 1_000;
  const app = Fastify({
    bodyLimit: bodyBytesMax,
    forceCloseConnections: "idle",
    http: {
      // The guard below judges a missing `Host`: Node would refuse probes that send none.
      requireHostHeader: false,
      headersTimeout: Math.min(HEADERS_LIMIT_MS, requestLimitMs),
      connectionsCheckingInterval: CONNECTIONS_CHECKED_EVERY_MS,
    },
    // From the first byte of a request to the last of its body. An answer may take as long as it likes.
    requestTimeout: requestLimitMs,
    logger: false,
    routerOptions: { maxParamLength: 16_384 },
  });
  const refuse = (
    request: FastifyRequest,
    { reason, error, token }: { reason: string; error: TenureError; token?: string | undefined },
  ): never => {
    telemetry.refusedRequests.inc({ reason });
    const route = `${request.method} ${request.routeOptions.url ?? "none"}`;
    audit.refused({ reason, route, address: clientAddress(request), token });
    throw error;
  };

  app.setErrorHandler(renderFailure(log, bodyBytesMax));
  app.setNotFoundHandler(answerElsewhere);
  app.decorateRequest("bodyText", "");
  app.decorateRequest("principal");
  acceptJson(app);
  app.server.on("connection", connections.opened);
  // Everything that can refuse a request is decided here, before a byte of its body is kept.
  app.addHook("onRequest", async (request, reply) => {
    recordClientAddress(request.raw, proxies);
    const counted = connections.forwarded(request.raw);
    if (!counted) throw new TenureError("RATE_LIMITED", { retry_after_ms: BUSY_ADDRESS_RETRY_MS });
    reply.raw.once("close", counted.ended);
    reply.header("x-content-type-options", "nosniff");
    // The files of the console say otherwise.
    reply.header("cache-control", "no-store");
    const { host, origin } = request.headers;
    if (hasTwoHosts(request.raw)) {
      const reason = "a request must have one Host header";
      refuse(request, { reason: "host", error: new TenureError("INVALID_REQUEST", { reason }) });
    }
    if (!guard.hostAllowed(host) && !isProbe(request))
      refuse(request, {
        reason: "host",
        error: forbidden(`this server is not known as ${shown(host)}`),
      });
    if (!guard.originAllowed(origin, host ?? "")) {
      const error = forbidden(`pages of ${shown(origin)} may not call this server`);
      refuse(request, { reason: "origin", error });
    }
    if (!isRead(request) && !isJson(request) && !isEmptyWithBearer(request)) {
      const reason = "a request that changes something needs content-type: application/json";
      const error = new TenureError("INVALID_REQUEST", { reason });
      refuse(request, { reason: "content_type", error });
    }
    const { route } = request.routeOptions.config;
    if (route) request.principal = await admit(route, request);
    else answerElsewhere(request, reply);
  });
  app.addHook("onResponse", async (request, reply) => {
    const route = request.routeOptions.url ?? "none";
    const labels = { method: request.method, route, status: reply.statusCode };
    telemetry.httpSeconds.observe(labels, reply.elapsedTime / 1_000);
  });

  for (const { route, answer, bodyAsText } of [
    ...served,
    describeApi(served.map(({ route }) => route)),
  ]) {
    app.route({
      method: route.method,
      url: route.path,
      config: { bodyAsText, route },
      bodyLimit: route.roles === "public" ? STRANGER_BODY_BYTES_MAX : bodyBytesMax,
      handler(request, reply) {
        const staysOpen = route.produces?.includes(SSE_TYPE) && !authenticator.open;
        if (staysOpen) endWithSession(sessions, request, reply);
        const { principal } = request;
        const deed = deedOf(route, request, principal);
        if (!deed) return answer(request, reply, principal);
        return audit.run(deed, (act) => answer(request, reply, principal, act));
      },
    });
  }

  function answerElsewhere(request: FastifyRequest, reply: FastifyReply): void {
    connections.askedWithoutToken(request.raw.socket);
    if (!site.answer(request, reply)) notFound(request, reply);
  }

  async function admit(route: Route, request: FastifyRequest): Promise<Principal> {
    const ids = authenticator.open ? [] : sessionIdsOf(request);
    if (ids.length > 0 && !isRead(request) && request.headers.origin === undefined) {
      const error = forbidden("a cookie changes something only for a page of this server");
      refuse(request, { reason: "cookie", error });
    }
    const principal =
      ids.length > 0
        ? await bySession(route, ids)
        : authenticator.identify(bearerOf(request.headers.authorization));
    if (principal) connections.proved(request.raw.socket);
    else connections.askedWithoutToken(request.raw.socket);
    judgeForwarding(principal, request);
    if (mayCall(route, principal?.role)) return principal ?? ANYBODY;
    if (principal) {
      const error = forbidden(`role ${principal.role} may not call ${route.method} ${route.path}`);
      return refuse(request, { reason: "role", error, token: principal.name });
    }
    const error = new TenureError("UNAUTHENTICATED", { reason: "a valid bearer token is needed" });
    return refuse(request, { reason: "token", error });
  }

  /** Role and tenant are the token's as this instance has it now: without the token the session is over. */
  async function bySession(route: Route, ids: string[]): Promise<Principal | undefined> {
    const finding = sessions.find(ids);
    // A public route must answer without Postgres too.
    const token = await (route.roles === "public" ? finding.catch(() => undefined) : finding);
    return token && authenticator.configured(token);
  }

  /** Instances mark what they pass on, and have a token of their own for it: no other token may, and they no other. */
  function judgeForwarding(principal: Principal | undefined, request: FastifyRequest): void {
    if (authenticator.open) return;
    const { headers } = request;
    if (principal?.role !== "peer") delete headers[FORWARDED_HEADER];
    else if (headers[FORWARDED_HEADER] === undefined) {
      const error = forbidden("role peer is for requests that an instance passes on");
      refuse(request, { reason: "role", error, token: principal.name });
    }
  }

  return app;
}

/** Resolves to the URL the server is reached at; a port that is taken is one clear sentence. */
export async function listen(
  app: FastifyInstance,
  { host, port }: { host: string; port: number },
): Promise<string> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    throw new Error(
      `port ${port} on ${host} is in use; choose another with --port (0 picks a free one)`,
    );
  }
  const address = app.server.address();
  const bound = typeof address === "object" && address ? address.port : port;
  return `http://${urlHost(host)}:${bound}`;
}

/**
 * Takes no new request and lets those under way end. Whoever holds a connection open without asking anything
 * (browsers and HTTP clients do, ahead of time) does not count as idle to Node, and is not waited for.
 */
export async function closeHttp(app: FastifyInstance, graceMs: number): Promise<void> {
  const impatience = setTimeout(() => app.server.closeAllConnections(), graceMs);
  await app.close();
  clearTimeout(impatience);
}

const HEADERS_LIMIT_MS = 15_000;
const CONNECTIONS_CHECKED_EVERY_MS = 1_000;
/** What a sign-in needs: the routes that ask for no token take no larger body. */
const STRANGER_BODY_BYTES_MAX = 8_192;
const BUSY_ADDRESS_RETRY_MS = 1_000;

/**
 * A token in a header was put there by the caller and counts alone. A cookie is sent by the browser whatever page asks;
 * every browser names that page in `Origin` when something is to be changed, and the guard has judged it by then.
 */
const sessionIdsOf = ({ headers }: FastifyRequest): string[] =>
  headers.authorization === undefined ? sessionIdsIn(headers.cookie, headers.host) : [];

const SESSION_CHECK_MS = 5_000;

/** An answer that stays open ends with the session it was asked with. While it is open, the session is in use. */
function endWithSession(
  sessions: ConsoleSessions,
  request: FastifyRequest,
  { raw }: FastifyReply,
): void {
  const ids = sessionIdsOf(request);
  if (ids.length === 0) return;
  const check = () =>
    sessions.find(ids).then(
      (token) => token ?? raw.destroy(),
      () => {}, // Without Postgres it is not known; the next check asks again.
    );
  const checks = setInterval(check, SESSION_CHECK_MS);
  checks.unref();
  raw.once("close", () => clearInterval(checks));
}

const forbidden = (reason: string): TenureError => new TenureError("FORBIDDEN", { reason });
const isRead = (request: FastifyRequest): boolean =>
  ["GET", "HEAD", "OPTIONS"].includes(request.method);
const isJson = (request: FastifyRequest): boolean =>
  /^application\/json\s*(;|$)/i.test(request.headers["content-type"] ?? "");
/**
 * The content type keeps pages of other sites out, which cannot send JSON without asking first. They cannot send a
 * bearer token either, so a write that has one and says all in its path needs no content type. A cookie, or `Basic`,
 * is sent by the browser itself and does not count.
 */
const isEmptyWithBearer = ({ headers }: FastifyRequest): boolean =>
  bearerOf(headers.authorization) !== undefined &&
  headers["content-type"] === undefined &&
  headers["transfer-encoding"] === undefined &&
  Number(headers["content-length"] ?? 0) === 0;
/**
 * Load balancers ask for health without a `Host`. Every browser sends one, so a page that was made to call this
 * server by another name still gets nothing.
 */
const isProbe = ({ headers, routeOptions }: FastifyRequest): boolean =>
  !headers.host && (routeOptions.url?.startsWith("/health/") ?? false);
const shown = (text: string | undefined): string => JSON.stringify((text ?? "").slice(0, 100));

/** A wildcard is no address to call; an IPv6 address stands in brackets. */
function urlHost(host: string): string {
  if (isWildcard(host)) return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}

/**
 * Some writes say all in their path; their body is empty, not `{}`. Keys that could reach a prototype are refused, except
 * where a part of the body is passed on as text: nothing is built from its keys, and the sockets take them too.
 */
function acceptJson(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser("error", "error");
  const parseAnyKeys = app.getDefaultJsonParser("ignore", "ignore");
  app.removeContentTypeParser("application/json");
  app.addContentTypeParser("application/json", { parseAs: "string" }, (request, body, done) => {
    if (body === "") return done(null, undefined);
    if (!request.routeOptions.config.bodyAsText) return parse(request, body as string, done);
    request.bodyText = withoutMark(body as string);
    return parseAnyKeys(request, request.bodyText, done);
  });
}

/** Fastify's parser passes over a byte order mark; `bodyText` is what `JSON.parse` takes. */
const withoutMark = (text: string): string => (text.startsWith("\ufeff") ? text.slice(1) : text);
