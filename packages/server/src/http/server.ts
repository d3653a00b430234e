import { Server as HttpsServer } from "node:https";
import { SSE_TYPE, TenureError } from "@tenure/protocol";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { type Config, isWildcard } from "../config.ts";
import type { Log } from "../kernel/log.ts";
import { deedOf } from "./audited.ts";
import { recordClientAddress, type TrustedProxies } from "./client-address.ts";
import { notFound, renderFailure } from "./failure.ts";
import { type ListenerTls, listenerOptions } from "./listener-tls.ts";
import {
  createRequestGuard,
  type RequestGuard,
  type RequestGuardOptions,
} from "./request-guard.ts";
import type { Served } from "./route.ts";
import { describeApi } from "./routes/openapi.ts";
import type { Site } from "./site.ts";

export interface HttpOptions extends RequestGuardOptions {
  config: Config;
  log: Log;
  proxies: TrustedProxies;
  served: Served[];
  site: Site;
  tls: ListenerTls | undefined;
}

const HEADERS_LIMIT_MS = 15_000;
const CONNECTIONS_CHECKED_EVERY_MS = 1_000;
/** Enough for a sign-in: routes without a token take no larger body. */
const PUBLIC_BODY_BYTES_MAX = 8_192;
const BUSY_ADDRESS_RETRY_MS = 1_000;

/** The HTTP server: checks every request once, before its body is read, and serves the routes. */
export function createHttp(options: HttpOptions): FastifyInstance {
  const { config, log, telemetry, proxies, connections, served, site } = options;
  const bodyBytesMax = config.limits.ws_frame_bytes;
  const app = createFastify(config, options.tls);
  const guard = createRequestGuard(options);

  app.setErrorHandler(renderFailure(log, bodyBytesMax));
  app.setNotFoundHandler(answerElsewhere);
  app.decorateRequest("bodyText", "");
  app.decorateRequest("principal");
  acceptJson(app);
  app.server.on("connection", connections.opened);
  app.server.on("secureConnection", connections.secured);
  app.addHook("onRequest", async (request, reply) => {
    recordClientAddress(request.raw, proxies);
    const counted = connections.forwarded(request.raw);
    if (!counted) throw new TenureError("RATE_LIMITED", { retry_after_ms: BUSY_ADDRESS_RETRY_MS });
    reply.raw.once("close", counted.ended);
    reply.header("x-content-type-options", "nosniff");
    // The files of the console override it.
    reply.header("cache-control", "no-store");
    guard.check(request);
    const { route } = request.routeOptions.config;
    if (route) request.principal = await guard.admit(route, request);
    else answerElsewhere(request, reply);
  });
  app.addHook("onResponse", async (request, reply) => {
    const route = request.routeOptions.url ?? "none";
    const labels = { method: request.method, route, status: reply.statusCode };
    telemetry.httpSeconds.observe(labels, reply.elapsedTime / 1_000);
  });

  for (const each of [...served, describeApi(served.map(({ route }) => route))])
    addRoute(app, each, { guard, audit: options.audit, bodyBytesMax });

  function answerElsewhere(request: FastifyRequest, reply: FastifyReply): void {
    connections.askedWithoutToken(request.raw.socket);
    if (!site.answer(request, reply)) notFound(request, reply);
  }

  return app;
}

function createFastify({ limits, server }: Config, tls: ListenerTls | undefined): FastifyInstance {
  const requestLimitMs = server.request_timeout_seconds * 1_000;
  const listener = {
    // The request guard handles a missing `Host`: Node would reject probes that send none.
    requireHostHeader: false,
    headersTimeout: Math.min(HEADERS_LIMIT_MS, requestLimitMs),
    connectionsCheckingInterval: CONNECTIONS_CHECKED_EVERY_MS,
  };
  const options = {
    bodyLimit: limits.ws_frame_bytes,
    forceCloseConnections: "idle" as const,
    // From the first byte of a request to the last of its body. The answer has no limit.
    requestTimeout: requestLimitMs,
    logger: false as const,
    routerOptions: { maxParamLength: 16_384 },
  };
  if (!tls) return Fastify({ ...options, http: listener });
  // The types of Fastify distinguish the two servers; the routes and the gateway use what both have.
  return Fastify({
    ...options,
    https: { ...listener, ...listenerOptions(tls) },
  }) as unknown as FastifyInstance;
}

function addRoute(
  app: FastifyInstance,
  { route, answer, bodyAsText }: Served,
  {
    guard,
    audit,
    bodyBytesMax,
  }: { guard: RequestGuard; audit: HttpOptions["audit"]; bodyBytesMax: number },
): void {
  app.route({
    method: route.method,
    url: route.path,
    config: { bodyAsText, route },
    bodyLimit: route.roles === "public" ? PUBLIC_BODY_BYTES_MAX : bodyBytesMax,
    handler(request, reply) {
      if (route.produces?.includes(SSE_TYPE)) guard.endWithCaller(request, reply);
      const { principal } = request;
      const deed = deedOf(route, request, principal);
      if (!deed) return answer(request, reply, principal);
      return audit.run(deed, (act) => answer(request, reply, principal, act));
    },
  });
}

/** The server of an app that was created with TLS. */
export const secureServer = (app: FastifyInstance): HttpsServer =>
  app.server as unknown as HttpsServer;

/** Resolves to the URL of the server; throws one clear sentence when the port is taken. */
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
  const scheme = app.server instanceof HttpsServer ? "https" : "http";
  return `${scheme}://${urlHost(host)}:${bound}`;
}

/**
 * Accepts no new request and lets running ones end. Node does not count a connection as idle that was opened ahead of time
 * and has sent nothing (browsers and HTTP clients do that); after `graceMs` all are closed.
 */
export async function closeHttp(app: FastifyInstance, graceMs: number): Promise<void> {
  const timer = setTimeout(() => app.server.closeAllConnections(), graceMs);
  await app.close();
  clearTimeout(timer);
}

/** A wildcard is no address to call; an IPv6 address stands in brackets. */
function urlHost(host: string): string {
  if (isWildcard(host)) return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}

/**
 * Accepts an empty body in place of `{}`: some writes have all in their path. Rejects keys that could reach a prototype,
 * except where part of the body is passed on as text: no object is built from those keys, and the sockets accept them too.
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

/** Fastify's parser skips a byte order mark; `JSON.parse`, which reads `bodyText`, does not. */
const withoutMark = (text: string): string => (text.startsWith("\ufeff") ? text.slice(1) : text);
