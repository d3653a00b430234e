import { mayCall, type Route, TenureError } from "@tenure/protocol";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { type Config, isWildcard } from "../config.ts";
import type { Log } from "../kernel/log.ts";
import type { Telemetry } from "../telemetry.ts";
import { type Authenticator, bearerOf, type Principal } from "./auth.ts";
import { recordClientAddress, type TrustedProxies } from "./client-address.ts";
import type { Connections } from "./connections.ts";
import { tokenInCookie } from "./cookie.ts";
import { notFound, renderFailure } from "./failure.ts";
import type { HostGuard } from "./hosts.ts";
import { describeApi } from "./openapi.ts";
import type { Served } from "./route.ts";
import type { Site } from "./site.ts";

export interface HttpOptions {
  config: Config;
  log: Log;
  telemetry: Telemetry;
  authenticator: Authenticator;
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
  const refuse = (reason: string, error: TenureError): never => {
    telemetry.refusedRequests.inc({ reason });
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
    const { host, origin } = request.headers;
    if (!guard.hostAllowed(host) && !isProbe(request))
      refuse("host", forbidden(`this server is not known as ${shown(host)}`));
    if (!guard.originAllowed(origin, host ?? "")) {
      refuse("origin", forbidden(`pages of ${shown(origin)} may not call this server`));
    }
    if (!isRead(request) && !isJson(request) && !isEmptyWithBearer(request)) {
      const reason = "a request that changes something needs content-type: application/json";
      refuse("content_type", new TenureError("INVALID_REQUEST", { reason }));
    }
    const { route } = request.routeOptions.config;
    if (route) request.principal = admit(route, request);
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
      handler: (request, reply) => answer(request, reply, request.principal),
    });
  }

  function answerElsewhere(request: FastifyRequest, reply: FastifyReply): void {
    connections.askedWithoutToken(request.raw.socket);
    if (!site.answer(request, reply)) notFound(request, reply);
  }

  function admit(route: Route, request: FastifyRequest): Principal {
    const { principal, byCookie } = identify(authenticator, request);
    if (principal) connections.proved(request.raw.socket);
    else connections.askedWithoutToken(request.raw.socket);
    if (byCookie && !isRead(request) && request.headers.origin === undefined) {
      refuse("cookie", forbidden("a cookie changes something only for a page of this server"));
    }
    if (mayCall(route, principal?.role)) return principal ?? ANYBODY;
    if (principal) {
      return refuse(
        "role",
        forbidden(`role ${principal.role} may not call ${route.method} ${route.path}`),
      );
    }
    return refuse(
      "token",
      new TenureError("UNAUTHENTICATED", { reason: "a valid bearer token is needed" }),
    );
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

/** For routes that ask nobody who they are. */
const ANYBODY: Principal = { name: "anybody", role: "viewer", tenant: "default" };

/**
 * A token in a header was put there by whoever asks. A cookie is sent by the browser whatever page asks; every
 * browser names that page in `Origin` when something is to be changed, and the guard has judged it by then.
 */
function identify(authenticator: Authenticator, { headers }: FastifyRequest) {
  const bearer = bearerOf(headers.authorization);
  const cookie = headers.authorization === undefined ? tokenInCookie(headers.cookie) : undefined;
  const principal = authenticator.identify(bearer ?? cookie);
  return { principal, byCookie: cookie !== undefined && !authenticator.open };
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
