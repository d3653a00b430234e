import { createEventTail, createNodeDiff } from "./changes.ts";
import type { Config } from "./config.ts";
import { configWarnings } from "./config.ts";
import { createAppDeployments } from "./deployments/app-deployments.ts";
import { openGateway } from "./gateway/gateway.ts";
import { createNodeCalls } from "./gateway/node-calls.ts";
import { createHealth, type Phase } from "./health.ts";
import { bearerOf, createAuthenticator } from "./http/auth.ts";
import { clusterRoutes } from "./http/cluster.ts";
import { deploymentRoutes } from "./http/deployments.ts";
import { eventRoutes } from "./http/events.ts";
import { healthRoutes } from "./http/health.ts";
import { createHostGuard } from "./http/hosts.ts";
import { membershipRoutes, nodeRoutes } from "./http/nodes.ts";
import { createHttp, listen } from "./http/server.ts";
import { sessionRoutes } from "./http/sessions.ts";
import { createStream } from "./http/stream.ts";
import { type Clock, systemClock } from "./kernel/clock.ts";
import type { Log } from "./kernel/log.ts";
import { type Random, systemRandom, uuid7 } from "./kernel/random.ts";
import { every, type Service } from "./kernel/service.ts";
import { joinInstances } from "./membership/instance.ts";
import { forgetDeadInstances, liveInstances } from "./membership/instance-store.ts";
import { createMembership } from "./membership/membership.ts";
import { appendEvent, forgetOldEvents, listEvents } from "./store/event-store.ts";
import { sql } from "./store/sql.ts";
import { openStores } from "./stores.ts";
import { createTelemetry } from "./telemetry.ts";
import { VERSION } from "./version.ts";

export interface AppOptions {
  config: Config;
  log: Log;
  clock?: Clock;
  random?: Random;
  /** Called when this process must end although nobody asked: another one took its name. */
  onFatal: (reason: string) => void;
}

export interface App {
  readonly url: string;
  readonly instanceId: string;
  readonly durability: string;
  stop(): Promise<void>;
}

const HEARTBEAT_INTERVAL_MS = 5_000;
const HOUSEKEEPING_INTERVAL_MS = 3_600_000;

/** Builds every part, connects them and starts them. The only file that knows them all. */
export async function startApp(options: AppOptions): Promise<App> {
  const { config, log, clock = systemClock, random = systemRandom } = options;
  const telemetry = createTelemetry();
  for (const warning of configWarnings(config))
    log.warn({ event: "config.doubted", warning }, warning);

  const { instance_id, enabled: phase2, presence_ttl_seconds } = config.scheduler.phase2;
  const instanceId = instance_id === "auto" ? `i-${random.bytes(6).toString("hex")}` : instance_id;
  const bootId = uuid7(random, clock.wallMs());
  const stores = await openStores({ config, clock, log, telemetry });
  const { db, hot } = stores;

  let phase: Phase = "starting";
  const health = createHealth({
    phase: () => phase,
    clock,
    dependencies: [
      { name: "postgres", kind: db.kind, ping: () => db.query(sql`select 1`) },
      { name: phase2 ? "redis" : "memory", kind: hot.kind, ping: () => hot.ping() },
    ],
    onAnswer: (dependency, ok) => telemetry.dependencyUp.set({ dependency }, ok ? 1 : 0),
  });
  const stream = createStream(clock);
  const { node_snapshot, owner_ttl_seconds } = config.scheduler.phase2;
  const fleetChanges = createNodeDiff();
  const membership = createMembership({
    instanceId,
    db,
    hot,
    clock,
    random,
    log,
    settings: {
      presenceTtlMs: node_snapshot.presence_ttl_seconds * 1_000,
      ownerTtlMs: owner_ttl_seconds * 1_000,
      refreshIntervalMs: node_snapshot.refresh_interval_ms,
      removeStaleAfterMs: node_snapshot.remove_stale_after_seconds * 1_000,
      sessionGoneAfterMs: config.scheduler.session_gone_after_seconds * 1_000,
      brakeEnabled: config.membership.mass_loss_brake,
    },
    onRound: (nodes) => {
      telemetry.nodes.set(
        { kind: "node_unit" },
        nodes.filter((node) => node.online && node.node_unit).length,
      );
      telemetry.nodes.set(
        { kind: "worker" },
        nodes.filter((node) => node.online && !node.node_unit).length,
      );
      telemetry.brakeActive.set(membership.members.brake().active ? 1 : 0);
      for (const change of fleetChanges(nodes)) stream.publish(change);
    },
  });
  const deployments = createAppDeployments({
    ...{ config, instanceId, bootId, db, clock, random, log, telemetry, membership },
    instances: () => liveInstances(db),
    onChange: (id, op) => stream.publish({ topic: "deployments", op, id }),
  });
  const eventTail = createEventTail({ db, publish: stream.publish, clock, log });
  const authenticator = createAuthenticator(config.auth.tokens, config.auth.peer_token);
  const guard = createHostGuard({
    host: config.server.host,
    advertiseUrl: config.server.advertise_url,
    allowedOrigins: config.server.allowed_origins,
  });
  const http = createHttp({
    config,
    log,
    telemetry,
    authenticator,
    guard,
    served: [
      ...healthRoutes({ health, instanceId, telemetry }),
      ...clusterRoutes({ instanceId, phase2, health, instances: () => liveInstances(db) }),
      ...eventRoutes({ list: (filter) => listEvents(db, filter) }),
      ...deploymentRoutes(deployments.admin),
      ...nodeRoutes({ views: membership.fleet.views, setDraining: membership.drain }),
      ...membershipRoutes({
        current: membership.members.current,
        brake: membership.members.brake,
        release: async () => {
          await membership.members.releaseBrake();
          await membership.members.refresh();
        },
        wallMs: clock.wallMs,
      }),
      ...sessionRoutes(membership.sessions),
      ...stream.routes,
    ],
  });
  const gateway = openGateway({
    server: http.server,
    frameBytesMax: config.limits.ws_frame_bytes,
    allowed: (host, origin) => guard.hostAllowed(host) && guard.originAllowed(origin, host ?? ""),
    bearerOf,
    identify: authenticator.identify,
    onSockets: (kind, change) => telemetry.sockets.inc({ kind }, change),
    node: {
      instanceId,
      nodes: membership.nodes,
      heartbeatIntervalMs: HEARTBEAT_INTERVAL_MS,
      calls: createNodeCalls(membership.members, deployments.forNodes),
      clock,
      random,
    },
    session: { instanceId, sessions: membership.sessions },
  });

  const housekeeping = every(
    HOUSEKEEPING_INTERVAL_MS,
    async () => {
      await forgetDeadInstances(db);
      await forgetOldEvents(db);
      await deployments.forgetOld();
    },
    {
      clock,
      onError: (error) => log.warn({ event: "housekeeping.failed", error }, "will try again"),
    },
  );

  let instance: Service | undefined;
  try {
    const url = await listen(http, config.server);
    instance = await joinInstances({
      instanceId,
      bootId,
      url: config.server.advertise_url || url,
      version: VERSION,
      db,
      ...(phase2 && { hot: { store: hot, presenceTtlMs: presence_ttl_seconds * 1_000 } }),
      clock,
      log,
      onReplaced: () => options.onFatal(`another process took the instance_id ${instanceId}`),
      onRenewal: (result) => telemetry.instanceRenewals.inc({ result }),
    });
    await warnAboutCompany({ config, log, others: (await liveInstances(db)).length - 1 });
    await appendEvent(db, {
      event: "instance.started",
      message: `instance ${instanceId} started`,
      subject: instanceId,
      details: { boot_id: bootId, url, version: VERSION },
    });
    housekeeping.start();
    membership.start();
    deployments.start();
    eventTail.start();
    phase = "running";
    log.info({ event: "instance.started", instanceId, bootId, url, version: VERSION }, "ready");

    return {
      url,
      instanceId,
      durability: db.durability,
      async stop() {
        phase = "stopping";
        log.info({ event: "instance.stopping", instanceId }, "stopping");
        const others = (await liveInstances(db)).filter(
          (other) => other.instance_id !== instanceId,
        );
        await membership.sendAway(others.map((other) => other.url));
        // Off the list before the port closes, so that nobody sends work to a port that does not answer.
        await instance?.stop();
        gateway.close();
        stream.close();
        deployments.endFollowing();
        await http.close();
        const parts = [deployments, membership, eventTail, housekeeping];
        await Promise.all(parts.map((part) => part.stop()));
        await stores.close();
        log.info({ event: "instance.stopped", instanceId }, "stopped");
      },
    };
  } catch (error) {
    // Or its renewals would go on, and keep a process alive that could not start.
    await instance?.stop();
    await http.close();
    await stores.close();
    throw error;
  }
}

/** Without Redis several instances share deployments and nonces, but a job stays where it was submitted. */
async function warnAboutCompany({
  config,
  log,
  others,
}: {
  config: Config;
  log: Log;
  others: number;
}): Promise<void> {
  if (config.scheduler.phase2.enabled || others < 1) return;
  log.warn(
    { event: "instance.alone-with-jobs", others },
    "other instances share this Postgres, but scheduler.phase2.enabled is false: jobs stay within one instance",
  );
}
