import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { Db } from "../store/db.ts";
import { appendEvent } from "../store/event-store.ts";
import type { Telemetry } from "../telemetry.ts";
import { createNonces, type Nonces, type NoncesOptions } from "./allocator.ts";
import type { Operation } from "./batch.ts";
import type { Peer } from "./routing.ts";

export interface AppNoncesOptions {
  config: Config;
  instanceId: string;
  bootId: string;
  clock: Clock;
  random: Random;
  log: Log;
  telemetry: Telemetry;
  db: Db;
  leaseDb: Db;
  liveInstances(): Promise<Peer[]>;
}

/** The allocator as the settings want it, with its metrics and events. */
export function createAppNonces(options: AppNoncesOptions): Nonces {
  const { config, leaseDb } = options;
  const { mode, lease_ttl_ms, queue_max, hold_ttl_ms, hold_expiry, ahead_max } = config.nonce;
  return createNonces({
    mode,
    instanceId: options.instanceId,
    bootId: options.bootId,
    leaseTtlMs: lease_ttl_ms,
    queueMax: queue_max,
    rules: { holdTtlMs: hold_ttl_ms, holdExpiry: hold_expiry, aheadMax: ahead_max },
    db: leaseDb,
    clock: options.clock,
    random: options.random,
    log: options.log,
    peerToken: config.auth.peer_token,
    liveInstances: options.liveInstances,
    observe: observe(options),
  });
}

function observe({ instanceId, telemetry, log, db }: AppNoncesOptions): NoncesOptions["observe"] {
  /** What happened is written down when it can be; the write it tells of is done either way. */
  function tell(event: Parameters<typeof appendEvent>[1]): void {
    log.warn({ ...event.details, event: event.event, signer: event.subject }, event.message);
    appendEvent(db, event).catch((error: unknown) =>
      log.warn({ event: "event.lost", lost: event.event, error }, "an event could not be stored"),
    );
  }

  return {
    acquired(signer, result, formerOwner) {
      telemetry.leaseAcquired.inc({ result });
      if (result !== "taken_over") return;
      tell({
        event: "lease.taken-over",
        message: `${instanceId} took over a signer whose owner let its lease run out`,
        subject: signer,
        details: { instance_id: instanceId, former_owner: formerOwner },
      });
    },
    fenced(signer, operations, fencingToken) {
      for (const operation of operations) telemetry.fenceRefused.inc({ op: opOf(operation) });
      tell({
        event: "write.fenced",
        code: "FENCED",
        message: `a write of ${instanceId} was refused: its term is over`,
        subject: signer,
        details: {
          instance_id: instanceId,
          fencing_token: fencingToken,
          writes: operations.length,
        },
      });
    },
    committed({ weight, expired }) {
      if (weight > 0) telemetry.nonceBatchSize.observe(weight);
      if (expired > 0) telemetry.nonceHoldsExpired.inc(expired);
    },
    waited: (ms) => telemetry.nonceQueueSeconds.observe(ms / 1_000),
    counted({ held, released, quarantined }, depth) {
      telemetry.nonceHolds.set({ status: "HELD" }, held);
      telemetry.nonceHolds.set({ status: "RELEASED" }, released);
      telemetry.nonceHolds.set({ status: "QUARANTINED" }, quarantined);
      telemetry.nonceQueueDepth.set(depth);
    },
  };
}

function opOf(operation: Operation): string {
  return operation.kind === "mark" ? operation.event : operation.kind;
}
