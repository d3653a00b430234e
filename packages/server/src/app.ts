import type { Config } from "./config.ts";
import { configWarnings } from "./config.ts";
import { createHealth, type Phase } from "./health.ts";
import { clusterRoutes } from "./http/cluster.ts";
import { eventRoutes } from "./http/events.ts";
import { healthRoutes } from "./http/health.ts";
import { createHttp, listen } from "./http/server.ts";
import { signerRoutes } from "./http/signers.ts";
import { type Clock, systemClock } from "./kernel/clock.ts";
import type { Log } from "./kernel/log.ts";
import { type Random, systemRandom, uuid7 } from "./kernel/random.ts";
import { every } from "./kernel/service.ts";
import { joinInstances } from "./membership/instance.ts";
import { forgetDeadInstances, liveInstances } from "./membership/instance-store.ts";
import { createAppNonces } from "./nonces/app-nonces.ts";
import { isTimelineConfirmed, refuseOtherTimeline } from "./nonces/timeline.ts";
import { confirmTimeline } from "./nonces/timeline-store.ts";
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
  const stores = await openStores({
    config,
    clock,
    log,
    telemetry,
    onLeaseConnect: (connection) => refuseOtherTimeline(connection, log),
  });
  const { db, hot, leaseDb } = stores;
  const nonces = createAppNonces({
    ...{ config, instanceId, bootId, clock, random, log, telemetry, db, leaseDb },
    liveInstances: () => liveInstances(db),
  });

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
  const http = createHttp({
    config,
    log,
    telemetry,
    served: [
      ...healthRoutes({ health, instanceId, telemetry }),
      ...clusterRoutes({
        instanceId,
        phase2,
        health,
        instances: () => liveInstances(db),
        timelineConfirmed: () => isTimelineConfirmed(db),
        confirmTimeline: async () => {
          const confirmed = await confirmTimeline(db);
          const message = "an operator accepted the history of this Postgres";
          await appendEvent(db, {
            event: "timeline.confirmed",
            message,
            details: { ...confirmed },
          });
        },
      }),
      ...signerRoutes(nonces),
      ...eventRoutes({ list: (filter) => listEvents(db, filter) }),
    ],
  });

  const housekeeping = every(
    HOUSEKEEPING_INTERVAL_MS,
    async () => {
      await forgetDeadInstances(db);
      await forgetOldEvents(db);
    },
    {
      clock,
      onError: (error) => log.warn({ event: "housekeeping.failed", error }, "will try again"),
    },
  );

  try {
    const url = await listen(http, config.server);
    const instance = await joinInstances({
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
    nonces.start();
    phase = "running";
    log.info({ event: "instance.started", instanceId, bootId, url, version: VERSION }, "ready");

    return {
      url,
      instanceId,
      durability: db.durability,
      async stop() {
        phase = "stopping";
        log.info({ event: "instance.stopping", instanceId }, "stopping");
        // Off the list first, so that others stop sending work here while what is here is finished.
        await instance.stop();
        await http.close();
        await nonces.stop();
        await housekeeping.stop();
        await stores.close();
        log.info({ event: "instance.stopped", instanceId }, "stopped");
      },
    };
  } catch (error) {
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
