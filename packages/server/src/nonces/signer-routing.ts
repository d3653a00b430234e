import type { Clock } from "../kernel/clock.ts";

export interface Peer {
  instance_id: string;
  url: string;
  version?: string;
}

export interface SignerRouting {
  /** The peer that this signer is routed to; undefined when that is this instance. */
  peerOf(signer: string): Promise<Peer | undefined>;
  /** Whether the signer is routed here, by the list of instances that was read last. */
  isOurs(signer: string): boolean;
  /** Reads the live instances again unless the list is fresh. Does nothing before the first request has read it. */
  refreshKnown(): Promise<void>;
  /** Skips a peer that did not answer for 3 s: its signers are routed to the instance with the next highest hash. */
  doubt(instanceId: string): void;
}

const CACHE_MS = 1_000;
const DOUBT_MS = 3_000;

/** Chooses the instance that does a signer's work in Worker-Queue mode. A wrong choice costs a hop or a wait, never a number. */
export function createSignerRouting(options: {
  instanceId: string;
  clock: Clock;
  liveInstances(): Promise<Peer[]>;
}): SignerRouting {
  const { instanceId, clock } = options;
  const doubted = new Map<string, number>();
  let peers: Peer[] = [];
  let freshUntilMs = Number.NEGATIVE_INFINITY;
  let reading: Promise<void> | undefined;

  /** Keeps the former list when it cannot be read; the write itself then reports the outage. */
  async function read(): Promise<void> {
    peers = await options.liveInstances().catch(() => peers);
    freshUntilMs = clock.monotonicMs() + CACHE_MS;
    reading = undefined;
  }

  async function refresh(): Promise<void> {
    if (clock.monotonicMs() >= freshUntilMs) reading ??= read();
    await reading;
  }

  function ownerIdOf(signer: string): string {
    const nowMs = clock.monotonicMs();
    const others = peers
      .map((peer) => peer.instance_id)
      .filter((id) => id !== instanceId && (doubted.get(id) ?? nowMs) <= nowMs);
    return ownerOf(signer, [instanceId, ...others]) ?? instanceId;
  }

  return {
    async peerOf(signer) {
      const refreshed = refresh();
      // The former list is used while the next one is read; a wrong choice costs a hop.
      if (peers.length === 0) await refreshed;
      const owner = ownerIdOf(signer);
      return owner === instanceId
        ? undefined
        : peers.find(({ instance_id }) => instance_id === owner);
    },
    isOurs: (signer) => ownerIdOf(signer) === instanceId,
    refreshKnown: async () => (peers.length === 0 ? undefined : refresh()),
    doubt(id) {
      doubted.set(id, clock.monotonicMs() + DOUBT_MS);
    },
  };
}

/**
 * The instance that a signer is routed to, by rendezvous hashing: the highest hash of instance and signer. Instances with
 * the same list choose the same one without a message, and an instance that leaves moves only its own signers.
 */
export function ownerOf(signer: string, instanceIds: readonly string[]): string | undefined {
  let best: { instanceId: string; weight: number } | undefined;
  for (const instanceId of instanceIds) {
    const weight = hash(`${instanceId}\n${signer}`);
    if (!best || weight > best.weight || (weight === best.weight && instanceId > best.instanceId)) {
      best = { instanceId, weight };
    }
  }
  return best?.instanceId;
}

/** FNV-1a, then murmur's finalizer: FNV-1a alone gives texts that differ only at the end nearly the same hash. */
function hash(text: string): number {
  let h = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    h = Math.imul(h ^ text.charCodeAt(index), 0x01000193);
  }
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
