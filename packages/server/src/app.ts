import { createAppAccess } from "./access/app-access.ts";
import { createConsoleSessions } from "./access/console-sessions.ts";
import { createAudit } from "./audit/audit.ts";
import { requireAuditFile } from "./audit/line-file.ts";
import { type AuthToken, configWarnings } from "./config.ts";
import { type Core, type CoreOptions, openCore } from "./core.ts";
import { createAppDelivery } from "./delivery/app-delivery.ts";
import { createAppDeployments } from "./deployments/app-deployments.ts";
import { openAppGateway } from "./gateway/app-gateway.ts";
import type { Phase } from "./health.ts";
import { createHousekeeping } from "./housekeeping.ts";
import { createEdge } from "./http/edge.ts";
import { openListenerTls, reportHandshakes, watchCertificates } from "./http/listener-tls.ts";
import { createStream } from "./http/routes/stream.ts";
import { closeHttp, listen, secureServer } from "./http/server.ts";
import { createEventTail, createNodeDiff } from "./http/stream-sources.ts";
import { createAppJobs } from "./jobs/app-jobs.ts";
import type { Jobs } from "./jobs/jobs.ts";
import { systemClock } from "./kernel/clock.ts";
import { createSteps, type Service } from "./kernel/service.ts";
import { createAppHealth } from "./membership/app-health.ts";
import * as instance from "./membership/app-instance.ts";
import { createAppMembership } from "./membership/app-membership.ts";
import { createAppNonces } from "./nonces/app-nonces.ts";
import { openKeyring } from "./secrets/key-file.ts";
import { createSecrets, type Secrets } from "./secrets/secrets.ts";
import { createAppStats } from "./stats/app-stats.ts";
import { openEvents } from "./store/event-store.ts";
import { checkTenants } from "./tenants.ts";
import { VERSION } from "./version.ts";

export interface AppOptions extends CoreOptions {
  /** Accepted once in place of a token at the sign-in. */
  signInCode?: { code: string; token: string } | undefined;
  /** Called when this process must end by itself: another process took its instance id. */
  onFatal: (reason: string) => void;
}

export interface App {
  readonly url: string;
  readonly instanceId: string;
  readonly durability: string;
  /** Replaces the tokens of the settings; throws for a change that needs a restart. */
  replaceTokens(tokens: readonly AuthToken[]): void;
  stop(): Promise<void>;
  /** The steps of a stop that have begun and not ended. */
  stillStopping(): string[];
  /** Reads the certificates of the listener now; undefined without TLS. */
  reloadCertificates: (() => void) | undefined;
}

/** How long running requests may take to end when this instance stops. */
const HTTP_GRACE_MS = 3_000;

/** Builds every part, connects them, starts and stops them. The only file that knows them all. */
export async function startApp(options: AppOptions): Promise<App> {
  const { config, log } = options;
  for (const warning of configWarnings(config))
    log.warn({ event: "config.doubted", warning }, warning);
  requireAuditFile(config.audit.file);
  const tls = openListenerTls(config);
  // Before the stores: a bad key file fails the start at once.
  const keyring = openKeyring(config.server.secret_key_file, { clock: systemClock, ...options });
  const core = await openCore(options);
  const { instanceId, bootId, stores } = core;
  let phase: Phase = "starting";
  const secrets = createSecrets({ ...core, keyring });
  const parts = createParts(core, secrets, () => phase);
  const { access, deployments, nonces, stream } = parts;
  const { http, upgrades } = createEdge({
    ...core,
    ...parts,
    ...access,
    ...{ tls, signInCode: options.signInCode },
  });
  const certificates = tls && watchCertificates({ ...core, tls, server: secureServer(http) });
  if (tls) reportHandshakes({ ...core, server: secureServer(http) });
  const services = { ...parts.services, ...(certificates && { certificates }) };
  const gateway = openAppGateway({ ...core, ...parts, ...upgrades, server: http.server });
  const steps = createSteps();
  let listed: Service | undefined;
  try {
    await instance.requirePeers(core);
    await access.tableTokens.open();
    const url = await listen(http, config.server);
    listed = await instance.enterInstances(core, url, options.onFatal);
    await instance.recordStart(core, url);
    await checkTenants({ ...core, tokens: access.knownTokens.all() });
    await nonces.logStranded(access.knownTokens.all());
    for (const service of Object.values(services)) service.start();
    phase = "running";
    log.info({ event: "instance.started", instanceId, bootId, url, version: VERSION }, "ready");
    return {
      ...{ url, instanceId, durability: core.db.durability },
      ...{ replaceTokens: access.replaceConfigTokens, stop, stillStopping: steps.running },
      reloadCertificates: certificates?.wake,
    };
  } catch (error) {
    // Otherwise its renewals would keep a process alive that could not start.
    await listed?.stop();
    await http.close();
    await stores.close();
    throw error;
  }

  async function stop(): Promise<void> {
    phase = "stopping";
    log.info({ event: "instance.stopping", instanceId }, "stopping");
    await steps.run("send-away", () => instance.sendAway(core, parts));
    // Off the list before the port closes, so that no work is sent to a port that does not answer.
    await steps.run("instance-list", async () => listed?.stop());
    gateway.close();
    stream.close();
    deployments.endFollowing();
    await steps.run("http", () => closeHttp(http, HTTP_GRACE_MS));
    const running = Object.entries(services);
    await Promise.all(running.map(([name, service]) => steps.run(name, () => service.stop())));
    await steps.run("stores", () => stores.close());
    log.info({ event: "instance.stopped", instanceId }, "stopped");
  }
}

function createParts(core: Core, secrets: Secrets, phase: () => Phase) {
  const { config, instanceId } = core;
  const access = createAppAccess(core);
  const stream = createStream(core.clock);
  const nodeChanges = createNodeDiff();
  const membership = createAppMembership({
    ...core,
    reservedOf: (nodeId) => jobs.reservedOf(nodeId),
    onRefresh(nodes) {
      for (const change of nodeChanges(nodes)) stream.publish(change);
      jobs.fleetSeen(nodes);
    },
    onSessionFoundAgain: (session) => jobs.sessions.foundAgain(session),
  });
  const delivery = createAppDelivery({
    ...core,
    receive: (message) => jobs.receive(message),
    route: (message) => jobs.route(message),
  });
  const jobs: Jobs = createAppJobs({
    ...{ ...core, ...access, delivery },
    onStoreLost: () => membership.announceAll(),
  });
  const nonces = createAppNonces({ ...core, liveInstances: core.instances });
  const deployments = createAppDeployments({
    ...{ ...core, ...access, membership, secrets },
    onChange: (id, op, tenants) => stream.publish({ topic: "deployments", op, id, tenants }),
  });
  const stats = createAppStats({
    ...{ ...core, membership, jobs, delivery, followers: stream.scopes },
    publish: (scope, item) =>
      stream.publishTo(scope, {
        ...{ topic: "stats", op: "changed", id: instanceId, tenants: scope.tenants, item },
      }),
  });
  const consoleSessions = createConsoleSessions({ ...core, settings: config.auth });
  const audit = createAudit({ ...core, settings: config.audit });
  const events = openEvents(core.db);
  const eventTail = createEventTail({ ...core, events, publish: stream.publish });
  const health = createAppHealth({ ...core, phase, members: membership.members });
  const housekeeping = createHousekeeping({ ...core, deployments, consoleSessions, audit });
  const services: Record<string, Service> = {
    ...{ membership, jobs, delivery, nonces, deployments },
    ...{ stats, eventTail, housekeeping, audit, tokens: access.tableTokens },
  };
  return {
    ...{ stream, health, membership, delivery, jobs, nonces, deployments, stats },
    ...{ access, consoleSessions, audit, events, secrets, services },
  };
}
