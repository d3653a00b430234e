import { resolve } from "node:path";
import { TIMELINE_STATES } from "@tenure/protocol";
import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { Db } from "../store/db.ts";
import { appendEvent } from "../store/event-store.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Telemetry } from "../telemetry.ts";
import type { Operation } from "./commit-batch.ts";
import { createNonces, type Nonces, type NoncesOptions } from "./nonces.ts";
import type { Peer } from "./signer-routing.ts";
import { listStrandedSigners } from "./store/signer-store.ts";
import { createTimeline, type Timeline } from "./timeline.ts";
import { coalesced, type Witness } from "./witness.ts";
import { openWitnessFile } from "./witness-file.ts";
import { openRedisWitness } from "./witness-redis.ts";

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
  hot: HotStore;
  liveInstances(): Promise<Peer[]>;
}

/** The allocator as the settings want it, with its metrics and events. */
export function createAppNonces(
  options: AppNoncesOptions,
): Nonces & { timeline: Timeline; logStranded(): Promise<void> } {
  const { config, leaseDb, telemetry, log } = options;
  const timeline = createTimeline({
    db: leaseDb,
    witnesses: openWitnesses(options).map(coalesced),
    log,
    onStatus({ state }) {
      for (const each of TIMELINE_STATES)
        telemetry.nonceTimeline.set({ state: each }, each === state ? 1 : 0);
    },
  });
  const { mode, lease_ttl_ms, queue_max, hold_ttl_ms, hold_expiry, ahead_max } = config.nonce;
  const nonces = createNonces({
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
    timeline,
  });
  return { ...nonces, timeline, logStranded: () => logStranded(options) };
}

/** Signers whose tenant has no signer token: until they are moved, no such token can use them. */
async function logStranded({ config, db, log }: AppNoncesOptions): Promise<void> {
  const tokens = config.auth.tokens.filter(({ role }) => role === "signer");
  if (tokens.length === 0) return;
  const stranded = await listStrandedSigners(
    db,
    tokens.map(({ tenant }) => tenant),
  );
  if (stranded.length === 0) return;
  log.warn(
    { event: "signers.stranded", tenants: stranded },
    "no signer token has the tenant of these signers; tenure signer move gives them to another",
  );
}

/** Besides this process: what outlives it. */
function openWitnesses({ config, hot, clock, log }: AppNoncesOptions): Witness[] {
  const { witness_file } = config.nonce;
  return [
    ...(hot.kind === "memory" ? [] : [openRedisWitness({ hot, clock, log })]),
    ...(witness_file === "" ? [] : [openWitnessFile(resolve(witness_file))]),
  ];
}

function observe({ instanceId, telemetry, log, db }: AppNoncesOptions): NoncesOptions["observe"] {
  /** What happened is written down when it can be; the write it tells of is done either way. */
  function tell(event: Parameters<typeof appendEvent>[1]): void {
    log.warn({ ...event.details, event: event.event, signer: event.subject }, event.message);
    store(event);
  }

  function store(event: Parameters<typeof appendEvent>[1]): void {
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
    moved(signer, from, to, actor) {
      log.info({ event: "signer.moved", signer, from, to }, "a signer was moved to another tenant");
      store({
        event: "signer.moved",
        message: `signer ${signer} was moved from tenant ${from} to ${to}`,
        subject: signer,
        details: { from, to, ...(actor && { actor }) },
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
