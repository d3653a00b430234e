import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import type { Db } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import { registerInstance, removeInstance, renewInstance } from "./store/instance-store.ts";
import { announcePresence, withdrawPresence } from "./store/presence-store.ts";

export const INSTANCE_RENEW_MS = 5_000;
export const INSTANCE_TTL_MS = 15_000;

export interface InstanceOptions {
  instanceId: string;
  bootId: string;
  url: string;
  version: string;
  db: Db;
  /** Given with `scheduler.phase2.enabled`: then the instance is present in Redis too. */
  hot?: { store: HotStore; presenceTtlMs: number } | undefined;
  clock: Clock;
  log: Log;
  /** Another boot took this instance's row: this process must not go on under the same name. */
  onReplaced: () => void;
  onRenewal: (result: "ok" | "error") => void;
}

/** This process in the list of live instances: entered at start, renewed, and taken out at a clean stop. */
export async function joinInstances(options: InstanceOptions): Promise<Service> {
  const { db, hot, clock, log, instanceId, bootId } = options;
  const term = { instanceId, bootId, ttlMs: INSTANCE_TTL_MS };

  async function renewRow(): Promise<void> {
    const ours = await renewInstance(db, term);
    // A row that ran out may have been swept; a row of another boot may not be taken back.
    if (!ours && !(await registerInstance(db, { ...term, ...options }))) options.onReplaced();
  }

  /** Each by itself: while one store is down, the other must not forget us too. */
  async function renew(): Promise<void> {
    const renewals = await Promise.allSettled([
      renewRow(),
      hot && announcePresence(hot.store, term, hot.presenceTtlMs),
    ]);
    const failed = renewals.find((renewal) => renewal.status === "rejected");
    if (failed) throw failed.reason;
    options.onRenewal("ok");
  }

  await enter(options, term);
  const renewMs = hot ? Math.min(INSTANCE_RENEW_MS, hot.presenceTtlMs / 3) : INSTANCE_RENEW_MS;
  const renewal = every(renewMs, renew, {
    clock,
    onError: (error) => {
      options.onRenewal("error");
      log.warn(
        { event: "instance.not-renewed", instanceId, error },
        "could not renew this instance's presence",
      );
    },
  });
  renewal.start();

  return {
    start() {},
    async stop() {
      await renewal.stop();
      await Promise.allSettled([
        removeInstance(db, term),
        hot && withdrawPresence(hot.store, term),
      ]);
    },
  };
}

/**
 * A process killed a moment ago may have left its row under a configured id. It runs out within one TTL,
 * so the successor waits that long; a row that still lives after it belongs to a process that does too.
 */
async function enter(
  options: InstanceOptions,
  term: { instanceId: string; bootId: string; ttlMs: number },
): Promise<void> {
  const { db, hot, clock, log, instanceId } = options;
  const giveUpAtMs = clock.monotonicMs() + INSTANCE_TTL_MS + INSTANCE_RENEW_MS;
  while (!(await registerInstance(db, { ...term, ...options }))) {
    if (clock.monotonicMs() > giveUpAtMs) {
      throw new Error(`another live server uses instance_id ${instanceId}; give each its own`);
    }
    log.warn(
      { event: "instance.awaited", instanceId },
      "waiting for a former process of this instance_id to run out",
    );
    await clock.sleep(1_000);
  }
  if (hot) await announcePresence(hot.store, term, hot.presenceTtlMs);
}
