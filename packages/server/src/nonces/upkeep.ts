import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import type { Db } from "../store/db.ts";
import type { Telemetry } from "../telemetry.ts";
import type { CommitScheduler } from "./commit-scheduler.ts";
import type { SignerRouting } from "./signer-routing.ts";
import { ALL_SIGNERS } from "./signer-tenants.ts";
import { countOpenNonces, forgetOldNonces, signersWithExpiredHolds } from "./store/nonce-store.ts";
import type { Timeline } from "./timeline.ts";

export interface UpkeepOptions {
  db: Db;
  leaseTtlMs: number;
  scheduler: CommitScheduler;
  routing: SignerRouting | undefined;
  timeline: Timeline;
  telemetry: Pick<Telemetry, "nonceHolds" | "nonceQueueDepth">;
  clock: Clock;
  log: Log;
}

// A restart of Postgres is to be noticed before much is written after it.
const TIMELINE_INTERVAL_MS = 1_000;
const SWEEP_INTERVAL_MS = 2_000;
const SWEEP_SIGNERS_MAX = 200;
const RETENTION_INTERVAL_MS = 600_000;
const RETENTION_ROWS_MAX = 5_000;

/** Renews leases, expires holds, watches the timeline of Postgres and deletes old rows. */
export function createNonceUpkeep(options: UpkeepOptions): Service {
  const { db, scheduler, routing, telemetry, clock, log, leaseTtlMs } = options;

  /**
   * Expires the holds of signers that get no requests. Each instance does so for the signers routed to it, by a fresh list
   * of instances: by the list of its last request, an idle instance would leave out the signers of a peer that died.
   */
  async function sweep(): Promise<void> {
    await routing?.refreshKnown();
    const signers = await signersWithExpiredHolds(db, SWEEP_SIGNERS_MAX);
    const ours = signers.filter((signer) => routing?.isOurs(signer) ?? true);
    await Promise.allSettled(
      ours.map((signer) => scheduler.submit(signer, { kind: "tend" }, 0, ALL_SIGNERS)),
    );
    const { held, released, quarantined } = await countOpenNonces(db);
    telemetry.nonceHolds.set({ status: "HELD" }, held);
    telemetry.nonceHolds.set({ status: "RELEASED" }, released);
    telemetry.nonceHolds.set({ status: "QUARANTINED" }, quarantined);
    telemetry.nonceQueueDepth.set(scheduler.depth);
  }

  async function retain(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await forgetOldNonces(db, RETENTION_ROWS_MAX)));
  }

  const onError = (error: unknown) =>
    log.warn({ event: "nonces.not-tended", error }, "upkeep of nonces failed; will retry");
  const services = [
    every(Math.min(leaseTtlMs / 6, 1_000), () => scheduler.tend(), { clock, onError }),
    every(TIMELINE_INTERVAL_MS, () => options.timeline.tick(), { clock, onError }),
    every(SWEEP_INTERVAL_MS, sweep, { clock, onError }),
    every(RETENTION_INTERVAL_MS, retain, { clock, onError }),
  ];

  return {
    start() {
      for (const service of services) service.start();
    },
    async stop() {
      await Promise.all(services.map((service) => service.stop()));
    },
  };
}
