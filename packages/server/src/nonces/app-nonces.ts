import { resolve } from "node:path";
import { TIMELINE_STATES } from "@tenure/protocol";
import type { AuthToken, Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { PeerFetch } from "../peers/peer-fetch.ts";
import type { Db } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Telemetry } from "../telemetry.ts";
import { createNonceEvents } from "./nonce-events.ts";
import { createNonces, type Nonces } from "./nonces.ts";
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
  peerFetch?: PeerFetch | undefined;
}

/** Creates the nonces from the settings, with their timeline and its witnesses. */
export function createAppNonces(
  options: AppNoncesOptions,
): Nonces & { timeline: Timeline; logStranded(tokens: readonly AuthToken[]): Promise<void> } {
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
    peerFetch: options.peerFetch,
    liveInstances: options.liveInstances,
    telemetry,
    events: createNonceEvents(options),
    timeline,
  });
  return {
    ...nonces,
    timeline,
    logStranded: (tokens: readonly AuthToken[]) => logStranded(options, tokens),
  };
}

/** Warns of signers whose tenant has no signer token: until they are moved, no token can use them. */
async function logStranded(
  { db, log }: AppNoncesOptions,
  known: readonly AuthToken[],
): Promise<void> {
  const tokens = known.filter(({ role }) => role === "signer");
  if (tokens.length === 0) return;
  const stranded = await listStrandedSigners(
    db,
    tokens.map(({ tenant }) => tenant),
  );
  if (stranded.length === 0) return;
  log.warn(
    { event: "signers.stranded", tenants: stranded },
    "no signer token has the tenant of these signers; move them with tenure signer move",
  );
}

/** The witnesses that outlive this process. */
function openWitnesses({ config, hot, clock, log }: AppNoncesOptions): Witness[] {
  const { witness_file } = config.nonce;
  return [
    ...(hot.kind === "memory" ? [] : [openRedisWitness({ hot, clock, log })]),
    ...(witness_file === "" ? [] : [openWitnessFile(resolve(witness_file))]),
  ];
}
