import { DEFAULT_TENANT, type NodeView, sharesTenant } from "@tenure/protocol";
import { createConsoleSessions } from "./access/console-sessions.ts";
import { createAudit } from "./audit/audit.ts";
import { requireAuditFile } from "./audit/line-file.ts";
import { SignInLimit } from "./audit/sign-in-limit.ts";
import { type Config, configWarnings } from "./config.ts";
import { createDelivery } from "./delivery/delivery.ts";
import { createAppDeployments } from "./deployments/app-deployments.ts";
import { countDeployments } from "./deployments/store/count-store.ts";
import { createCallBudgets } from "./gateway/call-budget.ts";
import { openGateway } from "./gateway/gateway.ts";
import { createNodeCalls } from "./gateway/node-calls.ts";
import { createHealth, type Phase, shareWrite } from "./health.ts";
import { bearerOf, createAuthenticator } from "./http/auth.ts";
import { clientAddress, createTrustedProxies, recordClientAddress } from "./http/client-address.ts";
import { createConnections, createRefusalReport } from "./http/connections.ts";
import { createHostGuard, hasTwoHosts } from "./http/hosts.ts";
import { createJobCallers } from "./http/job-callers.ts";
import { auditRoutes } from "./http/routes/audit.ts";
import { clusterRoutes } from "./http/routes/cluster.ts";
import { deploymentRoutes } from "./http/routes/deployments.ts";
import { dlqRoutes } from "./http/routes/dlq.ts";
import { eventRoutes } from "./http/routes/events.ts";
import { healthRoutes } from "./http/routes/health.ts";
import { jobRoutes } from "./http/routes/jobs.ts";
import { membershipRoutes, nodeRoutes } from "./http/routes/nodes.ts";
import { sessionRoutes } from "./http/routes/sessions.ts";
import { accessRoutes } from "./http/routes/sign-in.ts";
import { signerRoutes } from "./http/routes/signers.ts";
import { statsRoutes } from "./http/routes/stats.ts";
import { createStream } from "./http/routes/stream.ts";
import { closeHttp, createHttp, listen } from "./http/server.ts";
import { createSignerAccess } from "./http/signer-access.ts";
import { openSite } from "./http/site.ts";
import { createEventTail, createNodeDiff } from "./http/stream-sources.ts";
import { createAppJobs } from "./jobs/app-jobs.ts";
import type { Jobs } from "./jobs/jobs.ts";
import { type Clock, systemClock } from "./kernel/clock.ts";
import type { Log } from "./kernel/log.ts";
import { type Random, systemRandom, uuid7 } from "./kernel/random.ts";
import { every, type Service } from "./kernel/service.ts";
import { INSTANCE_TTL_MS, joinInstances } from "./membership/instance.ts";
import { createMembership } from "./membership/membership.ts";
import { requirePeerToken, requirePeerTokenOnceListed } from "./membership/peer-token.ts";
import { readyUrls } from "./membership/ready-peers.ts";
import {
  forgetDeadInstances,
  liveInstances,
  renewInstance,
} from "./membership/store/instance-store.ts";
import {
  countAwayUnits,
  forgetNodeUnits,
  retireLostUnits,
} from "./membership/store/node-unit-store.ts";
import { createAppNonces } from "./nonces/app-nonces.ts";
import { createStats } from "./stats/stats.ts";
import { appendEvent, forgetOldEvents, listEvents } from "./store/event-store.ts";
import { openStores, type Stores } from "./store/open.ts";
import { sql } from "./store/sql.ts";
import { createTelemetry, type Telemetry } from "./telemetry.ts";
import { checkTenants } from "./tenants.ts";
import { VERSION } from "./version.ts";

export interface AppOptions {
  config: Config;
  log: Log;
  clock?: Clock;
  random?: Random;
  /** A code that the sign-in takes once in place of a token. */
  signInCode?: { code: string; token: string } | undefined;
  /** Called when this process must end although nobody asked: another one took its name. */
  onFatal: (reason: string) => void;
}

export interface App {
  readonly url: string;
  readonly instanceId: string;
  readonly durability: string;
  stop(): Promise<void>;
  /** The steps of a stop that have begun and not ended. */
  stillStopping(): string[];
}

/** How long requests under way may take to end when this instance stops. */
const HTTP_GRACE_MS = 3_000;
const HEARTBEAT_INTERVAL_MS = 5_000;
const HOUSEKEEPING_INTERVAL_MS = 3_600_000;
/** More dead letters than this are not counted for the overview. */
const LETTERS_COUNTED_MAX = 1_000;

/** Builds every part, connects them and starts them. The only file that knows them all. */
export async function startApp(options: AppOptions): Promise<App> {
  const { config, log, clock = systemClock, random = systemRandom } = options;
  for (const warning of configWarnings(config))
    log.warn({ event: "config.doubted", warning }, warning);
  requireAuditFile(config.audit.file);
  const telemetry = createTelemetry();
  const { instance_id } = config.scheduler.phase2;
  const instanceId = instance_id === "auto" ? `i-${random.bytes(6).toString("hex")}` : instance_id;
  const bootId = uuid7(random, clock.wallMs());
  const stores = await openStores({ config, clock, log, telemetry });
  const core = { config, log, clock, random, telemetry, instanceId, bootId, ...stores };
  let phase: Phase = "starting";
  const parts = createParts(core, () => phase);
  const edges = createEdges(core, parts, options.signInCode);

  let instance: Service | undefined;
  const stopping = new Set<string>();
  const { tokens, peer_token: peerToken } = config.auth;
  const peerAuth = { ...core, authenticates: tokens.length > 0, peerToken };
  try {
    await requirePeerToken(peerAuth);
    const url = await listen(edges.http, config.server);
    instance = await enter(core, url, options.onFatal);
    await requirePeerTokenOnceListed(peerAuth);
    await checkTenants({ ...core, tokens });
    await tellOfStart(core, url);
    await parts.nonces.logStranded();
    for (const service of Object.values(parts.services)) service.start();
    phase = "running";
    log.info({ event: "instance.started", instanceId, bootId, url, version: VERSION }, "ready");
    return { url, instanceId, durability: stores.db.durability, stop, stillStopping };
  } catch (error) {
    // Or its renewals would go on, and keep a process alive that could not start.
    await instance?.stop();
    await edges.http.close();
    await stores.close();
    throw error;
  }

  async function stop(): Promise<void> {
    phase = "stopping";
    log.info({ event: "instance.stopping", instanceId }, "stopping");
    await step("send-away", () => sendAway(core, parts)).catch((error) =>
      log.warn(
        { event: "instance.left-unsaid", instanceId, error },
        "a store is down: others learn of this stop when the TTLs have passed",
      ),
    );
    // Off the list before the port closes, so that no work is sent to a port that does not answer.
    await step("instance-list", async () => instance?.stop());
    edges.gateway.close();
    parts.stream.close();
    parts.deployments.endFollowing();
    await step("http", () => closeHttp(edges.http, HTTP_GRACE_MS));
    const services = Object.entries(parts.services);
    await Promise.all(services.map(([name, service]) => step(name, () => service.stop())));
    await step("stores", () => stores.close());
    log.info({ event: "instance.stopped", instanceId }, "stopped");
  }

  async function step(name: string, work: () => Promise<void>): Promise<void> {
    stopping.add(name);
    try {
      await work();
    } finally {
      stopping.delete(name);
    }
  }

  function stillStopping(): string[] {
    return [...stopping];
  }
}

/** What every part may need. */
interface Core extends Stores {
  config: Config;
  log: Log;
  clock: Clock;
  random: Random;
  telemetry: Telemetry;
  instanceId: string;
  bootId: string;
}

type Parts = ReturnType<typeof createParts>;

function createParts(core: Core, phase: () => Phase) {
  const { config, log, clock, telemetry, instanceId, db, hot } = core;
  const { phase2 } = config.scheduler;
  const stream = createStream(clock);
  const health = createHealth({
    phase,
    clock,
    dependencies: [
      { name: "postgres", kind: db.kind, ping: createPostgresCheck(core) },
      { name: phase2.enabled ? "redis" : "memory", kind: hot.kind, ping: () => hot.ping() },
      // Postgres may answer while the members cannot be read; then nothing fails over.
      { name: "members", kind: db.kind, ping: () => membership.members.checkRead() },
    ],
    onAnswer: (dependency, ok) => telemetry.dependencyUp.set({ dependency }, ok ? 1 : 0),
  });
  const nodeChanges = createNodeDiff();
  const membership = createMembership({
    ...core,
    settings: {
      presenceTtlMs: phase2.node_snapshot.presence_ttl_seconds * 1_000,
      ownerTtlMs: phase2.owner_ttl_seconds * 1_000,
      refreshIntervalMs: phase2.node_snapshot.refresh_interval_ms,
      removeStaleAfterMs: phase2.node_snapshot.remove_stale_after_seconds * 1_000,
      sessionGoneAfterMs: config.scheduler.session_gone_after_seconds * 1_000,
      tokenSessionsMax: config.limits.token_sessions_max,
      brakeEnabled: config.membership.mass_loss_brake,
      snapshotsEnabled: phase2.node_snapshot.enabled,
    },
    onRefresh: (nodes) => {
      meterNodes(telemetry, nodes);
      telemetry.brakeActive.set(membership.members.brake().active ? 1 : 0);
      for (const change of nodeChanges(withReserved(nodes, jobs))) stream.publish(change);
      jobs.fleetSeen(nodes);
    },
    onSessionFoundAgain: (session) => jobs.sessions.foundAgain(session),
  });
  const delivery = createDelivery({
    store: hot,
    instanceId,
    settings: phase2,
    clock,
    log,
    meter: {
      count: (event, by = 1) => telemetry.deliveries.inc({ event }, by),
      bury: (reason) => telemetry.dlqMoved.inc({ reason }),
      pending: (messages) => telemetry.inboxPending.set(messages),
    },
    receive: (message) => jobs.receive(message),
    route: (message) => jobs.route(message),
  });
  const jobs: Jobs = createAppJobs({
    ...core,
    delivery,
    heartbeatIntervalMs: HEARTBEAT_INTERVAL_MS,
  });
  const nonces = createAppNonces({ ...core, liveInstances: () => liveInstances(db) });
  const deployments = createAppDeployments({
    ...core,
    membership,
    instances: () => liveInstances(db),
    onChange: (id, op, tenants) => stream.publish({ topic: "deployments", op, id, tenants }),
  });
  const stats = createStats({
    ...core,
    registry: telemetry.registry,
    nodes: ({ tenants }) =>
      withReserved(
        membership.fleet.views().filter((node) => sharesTenant(node.tenants, tenants)),
        jobs,
      ),
    away: (scope) => countAwayUnits(db, scope),
    deployments: (scope) => countDeployments(db, scope),
    open: (tenants) => ({
      ...jobs.openOf(tenants),
      sessions: membership.sessions
        .connected()
        .filter((session) => tenants.includes(session.tenant)).length,
    }),
    letters: async () => (await delivery.dlq.list({ limit: LETTERS_COUNTED_MAX })).length,
    followers: stream.scopes,
    publish: (scope, item) =>
      stream.publishTo(scope, {
        ...{ topic: "stats", op: "changed", id: instanceId, tenants: scope.tenants, item },
      }),
  });
  const consoleSessions = createConsoleSessions({
    ...core,
    ageMaxSeconds: config.auth.console_session_seconds,
    idleSeconds: config.auth.console_idle_seconds,
  });
  const audit = createAudit({
    ...core,
    file: config.audit.file,
    retentionDays: config.audit.retention_days,
    entriesMax: config.audit.entries_max,
    onLost: (where, count) => telemetry.auditLost.inc({ where }, count),
  });
  const eventTail = createEventTail({ db, publish: stream.publish, clock, log });
  const housekeeping = createHousekeeping(core, async () => {
    await deployments.forgetOld();
    await consoleSessions.forgetEnded();
    await audit.forgetOld();
  });
  const services: Record<string, Service> = {
    ...{ membership, jobs, delivery, nonces, deployments },
    ...{ stats, eventTail, housekeeping, audit },
  };
  return {
    ...{ stream, health, membership, delivery, jobs, nonces, deployments, stats },
    ...{ consoleSessions, audit, services },
  };
}

/** A standby, or a store whose disk is full, answers every question and takes no write. */
function createPostgresCheck(core: Core): () => Promise<void> {
  const { db, presenceDb, clock, instanceId, bootId } = core;
  const term = { instanceId, bootId, ttlMs: INSTANCE_TTL_MS };
  // The embedded store has one session: behind the statements of a busy node the check would take it for down.
  const asked = db.kind === "embedded" ? presenceDb : db;
  const write = shareWrite(() => renewInstance(asked, term), clock);
  return async () => {
    await Promise.all([asked.query(sql`select 1`), write(), db.checkDisk()]);
  };
}

/** HTTP and the sockets, on one port: parse, one call to a part, render. */
function createEdges(core: Core, parts: Parts, signInCode: AppOptions["signInCode"]) {
  const { stream, health, membership, delivery, jobs, nonces, deployments, stats } = parts;
  const { consoleSessions, audit } = parts;
  const { config, log, clock, random, telemetry, instanceId, db } = core;
  const authenticator = createAuthenticator(config.auth.tokens, config.auth.peer_token);
  const guard = createHostGuard({
    host: config.server.host,
    advertiseUrl: config.server.advertise_url,
    allowedOrigins: config.server.allowed_origins,
  });
  const proxies = createTrustedProxies(config.server.trusted_proxies);
  const connections = createConnections(
    {
      connectionsMax: config.server.connections_max,
      perAddressMax: config.server.connections_per_address_max,
    },
    proxies,
    createRefusalReport({ log, telemetry, clock }),
  );
  const callerOf = createJobCallers(config.auth.tokens);
  const http = createHttp({
    config,
    log,
    telemetry,
    authenticator,
    sessions: consoleSessions,
    audit,
    guard,
    proxies,
    connections,
    served: [
      ...healthRoutes({ health, instanceId, telemetry, timeline: nonces.timeline }),
      ...clusterRoutes({
        instanceId,
        phase2: config.scheduler.phase2.enabled,
        health,
        instances: () => liveInstances(db),
        backlog: delivery.backlog,
        timeline: nonces.timeline,
      }),
      ...signerRoutes(nonces, createSignerAccess(config.auth.tokens)),
      ...auditRoutes(audit),
      ...eventRoutes({ list: (filter) => listEvents(db, filter) }),
      ...deploymentRoutes(deployments.admin),
      ...jobRoutes(jobs.http, callerOf),
      ...nodeRoutes({
        page: async (filter) => withReserved(await membership.fleet.page(filter), jobs),
        find: async (scope, id) => withReserved(await membership.fleet.find(scope, id), jobs),
        setDraining: membership.drain,
        async remove({ node_id: address, tenants = [DEFAULT_TENANT] }, act) {
          const removed = await membership.remove(address, act);
          if (removed) stream.publish({ topic: "nodes", op: "removed", id: address, tenants });
          return removed;
        },
      }),
      ...membershipRoutes({ ...membership.members, wallMs: clock.wallMs }),
      ...sessionRoutes(membership.sessions, callerOf),
      ...dlqRoutes({ ...delivery.dlq, tenantOf: jobs.tenantOf }),
      ...statsRoutes(stats),
      ...stream.routes,
      ...accessRoutes({
        authenticator,
        sessions: consoleSessions,
        audit,
        limit: new SignInLimit(clock),
        telemetry,
        proxies: createTrustedProxies(config.server.trusted_proxies),
        advertiseUrl: config.server.advertise_url,
        signInCode,
      }),
    ],
    site: openSite(),
  });
  const gateway = openGateway({
    server: http.server,
    frameBytesMax: config.limits.ws_frame_bytes,
    allowed: (request) => {
      const { host, origin } = request.headers;
      const isAllowed = guard.hostAllowed(host) && guard.originAllowed(origin, host ?? "");
      return isAllowed && !hasTwoHosts(request);
    },
    bearerOf,
    identify: authenticator.identify,
    onRefused: (request, { reason, path, token }) =>
      audit.refused({ reason, route: `GET ${path}`, address: clientAddress(request), token }),
    onSockets: (kind, change) => telemetry.sockets.inc({ kind }, change),
    counted(request) {
      recordClientAddress(request, proxies);
      return connections.forwarded(request);
    },
    onProved: connections.proved,
    node: {
      instanceId,
      nodes: membership.nodes,
      heartbeatIntervalMs: HEARTBEAT_INTERVAL_MS,
      calls: createNodeCalls(deployments.forNodes),
      budgetOf: createCallBudgets(config.limits.token_calls_per_second_max, clock),
      jobs: jobs.nodes,
      clock,
      random,
    },
    session: { instanceId, sessions: membership.sessions, jobs: jobs.sessions },
  });
  return { http, gateway };
}

/** Onto the list of live instances; `stop` takes it off again. */
function enter(core: Core, url: string, onFatal: AppOptions["onFatal"]): Promise<Service> {
  const { config, telemetry, instanceId, hot } = core;
  const { enabled, presence_ttl_seconds } = config.scheduler.phase2;
  return joinInstances({
    ...core,
    db: core.presenceDb,
    url: config.server.advertise_url || url,
    version: VERSION,
    hot: enabled ? { store: hot, presenceTtlMs: presence_ttl_seconds * 1_000 } : undefined,
    onReplaced: () => onFatal(`another process took the instance_id ${instanceId}`),
    onRenewal: (result) => telemetry.instanceRenewals.inc({ result }),
  });
}

async function tellOfStart(
  { config, log, instanceId, bootId, db }: Core,
  url: string,
): Promise<void> {
  const others = (await liveInstances(db)).length - 1;
  if (others > 0 && !config.scheduler.phase2.enabled) {
    log.warn(
      { event: "instance.alone-with-jobs", others },
      "other instances share this Postgres, but scheduler.phase2.enabled is false: jobs stay within one instance",
    );
  }
  await appendEvent(db, {
    event: "instance.started",
    message: `instance ${instanceId} started`,
    subject: instanceId,
    details: { boot_id: bootId, url, version: VERSION },
  });
}

/** Whoever is connected is told where else to go. */
async function sendAway({ db, instanceId }: Core, { membership, jobs }: Parts): Promise<void> {
  const listed = await liveInstances(db).catch(() => []);
  const others = listed.filter((other) => other.instance_id !== instanceId);
  const urls = await readyUrls(others);
  jobs.stopPlacingHere();
  await membership.sendAway(urls);
}

function createHousekeeping(
  { config, db, clock, log }: Core,
  forgetOld: () => Promise<void>,
): Service {
  const { forget_after_days } = config.membership;
  const clean = async () => {
    await forgetDeadInstances(db);
    await forgetOldEvents(db);
    await retireLostUnits(db);
    const forgotten = forget_after_days > 0 ? await forgetNodeUnits(db, forget_after_days) : 0;
    if (forgotten > 0)
      log.info(
        { event: "node-units.forgotten", count: forgotten },
        "forgot node-units gone for long",
      );
    await forgetOld();
  };
  return every(HOUSEKEEPING_INTERVAL_MS, clean, {
    clock,
    onError: (error) => log.warn({ event: "housekeeping.failed", error }, "will try again"),
  });
}

function withReserved(nodes: NodeView[], jobs: Jobs): NodeView[] {
  return nodes.map((node) => ({ ...node, reserved: jobs.reservedOf(node.node_id) }));
}

function meterNodes(telemetry: Telemetry, nodes: NodeView[]): void {
  const online = nodes.filter((node) => node.online);
  const units = online.filter((node) => node.node_unit).length;
  telemetry.nodes.set({ kind: "node_unit" }, units);
  telemetry.nodes.set({ kind: "worker" }, online.length - units);
}
