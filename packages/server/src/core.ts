import { type Config, ConfigError } from "./config.ts";
import { type Clock, systemClock } from "./kernel/clock.ts";
import type { Log } from "./kernel/log.ts";
import { PemProblem } from "./kernel/pem-files.ts";
import { type Random, systemRandom, uuid7 } from "./kernel/random.ts";
import { liveInstances } from "./membership/store/instance-store.ts";
import { openPeerFetch, type PeerFetch } from "./peers/peer-fetch.ts";
import { openStores } from "./store/open.ts";
import { createTelemetry } from "./telemetry.ts";

export interface CoreOptions {
  config: Config;
  log: Log;
  clock?: Clock;
  random?: Random;
}

export type Core = Awaited<ReturnType<typeof openCore>>;

const HEARTBEAT_INTERVAL_MS = 5_000;

/** What every part may need: the identity of this process, its settings, and its stores, opened and migrated. */
export async function openCore({
  config,
  log,
  clock = systemClock,
  random = systemRandom,
}: CoreOptions) {
  const telemetry = createTelemetry();
  const { instance_id } = config.scheduler.phase2;
  const instanceId = instance_id === "auto" ? `i-${random.bytes(6).toString("hex")}` : instance_id;
  const bootId = uuid7(random, clock.wallMs());
  const peerFetch = openPeers(config);
  const stores = await openStores({ config, clock, log, telemetry });
  return {
    ...{ config, log, clock, random, telemetry, instanceId, bootId, stores, ...stores },
    peerFetch,
    heartbeatIntervalMs: HEARTBEAT_INTERVAL_MS,
    instances: () => liveInstances(stores.db),
  };
}

/** Calls to other instances are made with the certificate of the listener, unless they have one of their own. */
function openPeers({ server: { tls } }: Config): PeerFetch {
  const isOwn = tls.peer_cert_file !== "";
  const named = (
    name: "ca_file" | "cert_file" | "key_file" | "peer_cert_file" | "peer_key_file",
  ) => (tls[name] === "" ? undefined : { name: `server.tls.${name}`, path: tls[name] });
  try {
    return openPeerFetch({
      ca: named("ca_file"),
      cert: named(isOwn ? "peer_cert_file" : "cert_file"),
      key: named(isOwn ? "peer_key_file" : "key_file"),
    });
  } catch (error) {
    throw error instanceof PemProblem ? new ConfigError([error.message]) : error;
  }
}
