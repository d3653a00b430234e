import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Service } from "../kernel/service.ts";
import type { PeerFetch } from "../peers/peer-fetch.ts";
import type { PostgresStore } from "../store/db.ts";
import { appendEvent } from "../store/event-store.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Telemetry } from "../telemetry.ts";
import { VERSION } from "../version.ts";
import { joinInstances } from "./instance.ts";
import type { Membership } from "./membership.ts";
import { requirePeerToken, requirePeerTokenOnceListed } from "./peer-token.ts";
import { readyUrls } from "./ready-peers.ts";
import { liveInstances } from "./store/instance-store.ts";

/** This process, its stores and its settings. */
export interface InstanceCore {
  config: Config;
  log: Log;
  clock: Clock;
  telemetry: Telemetry;
  instanceId: string;
  bootId: string;
  db: PostgresStore;
  presenceDb: PostgresStore;
  hot: HotStore;
  peerFetch: PeerFetch;
}

/** Before listening: ends the start where this instance lacks the peer token that its peers need. */
export const requirePeers = (core: InstanceCore): Promise<void> =>
  requirePeerToken(peerTokenOptions(core));

/** Lists this instance as live under `url`; `stop` takes it off the list. `onFatal`: another process took its id. */
export function enterInstances(
  core: InstanceCore,
  url: string,
  onFatal: (reason: string) => void,
): Promise<Service> {
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

/** Once listed: ends this instance where it lacks a peer token, warns of others without a shared Redis, records the start. */
export async function recordStart(core: InstanceCore, url: string): Promise<void> {
  const { config, log, instanceId, bootId, db } = core;
  await requirePeerTokenOnceListed(peerTokenOptions(core));
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

const peerTokenOptions = ({ config, ...core }: InstanceCore) => ({
  ...core,
  authenticates: config.auth.tokens.length > 0,
  peerToken: config.auth.peer_token,
});

/** At a stop: sends the nodes and sessions connected here to the other instances that are ready. */
export async function sendAway(
  { db, log, instanceId, peerFetch }: InstanceCore,
  {
    membership,
    jobs,
  }: { membership: Pick<Membership, "sendAway">; jobs: { stopPlacingHere(): void } },
): Promise<void> {
  try {
    const listed = await liveInstances(db).catch(() => []);
    const others = listed.filter((other) => other.instance_id !== instanceId);
    const urls = await readyUrls(others, peerFetch);
    jobs.stopPlacingHere();
    await membership.sendAway(urls);
  } catch (error) {
    log.warn(
      { event: "instance.left-unsaid", instanceId, error },
      "could not announce this stop because a store is down; other instances notice when the TTLs run out",
    );
  }
}
