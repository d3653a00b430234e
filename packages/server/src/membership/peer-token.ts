import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Db, PostgresStore } from "../store/db.ts";
import { type Instance, liveInstances } from "./store/instance-store.ts";

export interface PeerTokenOptions {
  instanceId: string;
  /** Whether this instance asks callers for a token. */
  authenticates: boolean;
  peerToken: string;
  db: PostgresStore;
  clock: Clock;
  log: Log;
}

const POLL_MS = 250;

/**
 * Throws when instances ask for tokens, another one is live and `auth.peer_token` is not set: they would refuse
 * each other's requests. Only this instance's own setting counts, so that a running fleet can be given the token
 * one restart after another.
 *
 * A process that was killed leaves a row that looks live for one TTL. Such a row is not renewed, so this waits
 * until each row is either renewed or has run out.
 */
export async function requirePeerToken(options: PeerTokenOptions): Promise<void> {
  if (!isMissing(options)) return;
  const { db, clock, log, instanceId } = options;
  const firstSeen = new Map<string, number>();
  for (;;) {
    const others = await otherInstances(db, instanceId);
    const renewed = others.find(
      (other) => other.expires_at.getTime() > (firstSeen.get(other.boot_id) ?? Infinity),
    );
    if (renewed) throw refusal(renewed);
    if (others.length === 0) return;
    if (firstSeen.size === 0) {
      log.warn(
        { event: "instance.peers-awaited", others: others.map((other) => other.instance_id) },
        "auth.peer_token is not set; waiting to see whether the other listed instances are live",
      );
    }
    for (const { boot_id, expires_at } of others) {
      if (!firstSeen.has(boot_id)) firstSeen.set(boot_id, expires_at.getTime());
    }
    await clock.sleep(POLL_MS);
  }
}

/** Repeats the check once this instance is listed: of two that started at the same moment, the later one ends. */
export async function requirePeerTokenOnceListed(options: PeerTokenOptions): Promise<void> {
  if (!isMissing(options)) return;
  const listed = await liveInstances(options.db);
  const own = listed.find(({ instance_id }) => instance_id === options.instanceId);
  const earlier = listed.find((other) => own && startedBefore(other, own));
  if (earlier) throw refusal(earlier);
}

/** The embedded store has one instance; a row of another one there is a former process. */
const isMissing = ({ authenticates, peerToken, db }: PeerTokenOptions): boolean =>
  authenticates && peerToken === "" && db.kind !== "embedded";

async function otherInstances(db: Db, instanceId: string): Promise<Instance[]> {
  return (await liveInstances(db)).filter((instance) => instance.instance_id !== instanceId);
}

function startedBefore(one: Instance, other: Instance): boolean {
  const difference = one.started_at.getTime() - other.started_at.getTime();
  return difference < 0 || (difference === 0 && one.instance_id < other.instance_id);
}

const refusal = ({ instance_id, url }: Instance): Error =>
  new Error(
    `auth.peer_token is not set, and instance ${instance_id} at ${url} is live: instances that ask for tokens refuse each other's requests without it. Set auth.peer_token (TENURE_AUTH_PEER_TOKEN) to the same secret on every instance; they can be restarted one after another`,
  );
