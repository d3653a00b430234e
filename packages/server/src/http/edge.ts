import type { Socket } from "node:net";
import { DEFAULT_TENANT, type NodeView } from "@tenure/protocol";
import type { FastifyInstance } from "fastify";
import type { AppAccess } from "../access/app-access.ts";
import type { ConsoleSessions } from "../access/console-sessions.ts";
import type { Act } from "../audit/actor.ts";
import type { Audit } from "../audit/audit.ts";
import { SignInLimit } from "../audit/sign-in-limit.ts";
import type { Config } from "../config.ts";
import type { Delivery } from "../delivery/contract.ts";
import type { DeploymentAdmin } from "../deployments/deployment-admin.ts";
import type { GatewayOptions } from "../gateway/gateway.ts";
import type { Health } from "../health.ts";
import type { Jobs } from "../jobs/jobs.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Membership } from "../membership/membership.ts";
import type { Nonces } from "../nonces/nonces.ts";
import type { Timeline } from "../nonces/timeline.ts";
import type { Secrets } from "../secrets/secrets.ts";
import type { StatsKeeper } from "../stats/stats.ts";
import type { Telemetry } from "../telemetry.ts";
import { bearerOf } from "./auth.ts";
import { clientAddress, createTrustedProxies, recordClientAddress } from "./client-address.ts";
import { createConnections, createRefusalReport } from "./connections.ts";
import { createHostGuard, hasTwoHosts } from "./hosts.ts";
import { createJobCallers } from "./job-callers.ts";
import { hasClientCertificate, type ListenerTls } from "./listener-tls.ts";
import { auditRoutes } from "./routes/audit.ts";
import { type ClusterSource, clusterRoutes } from "./routes/cluster.ts";
import { deploymentRoutes } from "./routes/deployments.ts";
import { dlqRoutes } from "./routes/dlq.ts";
import { type EventSource, eventRoutes } from "./routes/events.ts";
import { healthRoutes } from "./routes/health.ts";
import { jobRoutes } from "./routes/jobs.ts";
import { membershipRoutes, nodeRoutes } from "./routes/nodes.ts";
import { secretRoutes } from "./routes/secrets.ts";
import { sessionRoutes } from "./routes/sessions.ts";
import { type AccessOptions, accessRoutes } from "./routes/sign-in.ts";
import { signerRoutes } from "./routes/signers.ts";
import { statsRoutes } from "./routes/stats.ts";
import type { StreamHub } from "./routes/stream.ts";
import { enrolRoutes, tokenRoutes } from "./routes/tokens.ts";
import { createHttp } from "./server.ts";
import { createSignerAccess } from "./signer-access.ts";
import { openSite } from "./site.ts";

export interface EdgeOptions extends Pick<AppAccess, AccessParts> {
  config: Config;
  log: Log;
  clock: Clock;
  telemetry: Telemetry;
  instanceId: string;
  /** Accepted once in place of a token at the sign-in. */
  signInCode: AccessOptions["signInCode"];
  tls: ListenerTls | undefined;
  health: () => Promise<Health>;
  instances: ClusterSource["instances"];
  events: EventSource;
  stream: StreamHub;
  consoleSessions: ConsoleSessions;
  audit: Audit;
  membership: Membership;
  delivery: Delivery;
  jobs: Jobs;
  nonces: Nonces & { timeline: Timeline };
  deployments: { admin: DeploymentAdmin };
  secrets: Secrets;
  stats: StatsKeeper;
}

type AccessParts = "authenticator" | "watches" | "knownTokens" | "tokenAdmin" | "nodeEnrolment";

export interface Edge {
  http: FastifyInstance;
  /** The checks of an upgrade to a WebSocket: the same host, origin, token and limits as for a request. */
  upgrades: Pick<
    GatewayOptions,
    | "allowed"
    | "bearerOf"
    | "identify"
    | "certified"
    | "watch"
    | "onRefused"
    | "counted"
    | "onProved"
  >;
}

/** Builds the HTTP server from the domains: every route, and the checks before it. */
export function createEdge(options: EdgeOptions): Edge {
  const { config, audit, authenticator } = options;
  const { host, advertise_url, allowed_origins, trusted_proxies } = config.server;
  const guard = createHostGuard({
    host,
    advertiseUrl: advertise_url,
    allowedOrigins: allowed_origins,
  });
  const proxies = createTrustedProxies(trusted_proxies);
  const limits = {
    connectionsMax: config.server.connections_max,
    perAddressMax: config.server.connections_per_address_max,
  };
  const needCertificate = options.tls !== undefined && options.tls.clients !== "none";
  const certified = (socket: Socket) => !needCertificate || hasClientCertificate(socket);
  const connections = createConnections(limits, proxies, createRefusalReport(options));
  const http = createHttp({
    ...options,
    ...{ sessions: options.consoleSessions, guard, proxies, connections, certified },
    served: [
      ...domainRoutes(options, certified),
      ...accessRoutes({
        ...options,
        ...{ sessions: options.consoleSessions, proxies },
        limit: new SignInLimit(options.clock),
        advertiseUrl: advertise_url,
      }),
    ],
    site: openSite(),
  });
  return {
    http,
    upgrades: {
      allowed(request) {
        const { host, origin } = request.headers;
        const isAllowed = guard.hostAllowed(host) && guard.originAllowed(origin, host ?? "");
        return isAllowed && !hasTwoHosts(request);
      },
      bearerOf,
      identify: authenticator.identify,
      certified: (request) => certified(request.socket),
      watch: options.watches.watch,
      onRefused: (request, { reason, path, token }) =>
        audit.refused({ reason, route: `GET ${path}`, address: clientAddress(request), token }),
      counted(request) {
        recordClientAddress(request, proxies);
        return connections.forwarded(request);
      },
      onProved: connections.proved,
    },
  };
}

function domainRoutes(options: EdgeOptions, certified: (socket: Socket) => boolean) {
  const { config, clock, stream, membership, delivery, jobs, nonces } = options;
  const { timeline } = nonces;
  const callerOf = createJobCallers(options.knownTokens);
  return [
    ...healthRoutes({ ...options, timeline }),
    ...clusterRoutes({
      ...options,
      ...{ phase2: config.scheduler.phase2.enabled, backlog: delivery.backlog, timeline },
    }),
    ...signerRoutes(nonces, createSignerAccess(options.knownTokens)),
    ...tokenRoutes(options.tokenAdmin),
    ...enrolRoutes(options.nodeEnrolment, options.audit, certified),
    ...auditRoutes(options.audit),
    ...eventRoutes(options.events),
    ...deploymentRoutes(options.deployments.admin),
    ...secretRoutes(options.secrets),
    ...jobRoutes(jobs.http, callerOf),
    ...nodeRoutes({
      ...membership.fleet,
      setDraining: membership.drain,
      async remove({ node_id: id, tenants = [DEFAULT_TENANT] }: NodeView, act?: Act) {
        const removed = await membership.remove(id, act);
        if (removed) stream.publish({ topic: "nodes", op: "removed", id, tenants });
        return removed;
      },
    }),
    ...membershipRoutes({ ...membership.members, wallMs: clock.wallMs }),
    ...sessionRoutes(membership.sessions, callerOf),
    ...dlqRoutes({ ...delivery.dlq, tenantOf: jobs.tenantOf }),
    ...statsRoutes(options.stats),
    ...stream.routes,
  ];
}
