import type { Clock } from "../kernel/clock.ts";
import { ownerOf } from "./signer-owner.ts";

export interface Peer {
  instance_id: string;
  url: string;
  version?: string;
}

export interface Routing {
  /** Whom to ask about this signer; undefined when it is ours to do. */
  peerOf(signer: string): Promise<Peer | undefined>;
  /** By the instances known last; `refreshKnown` reads them. */
  isOurs(signer: string): boolean;
  /** Reads the live instances again, unless that was done a moment ago or never: then the first request does it. */
  refreshKnown(): Promise<void>;
  /** A peer that did not answer is passed over for a while, by the same rule everywhere: the next in line follows. */
  doubt(instanceId: string): void;
}

const CACHE_MS = 1_000;
const DOUBT_MS = 3_000;

/** Who does a signer's work in Worker-Queue mode. Being wrong costs a hop or a wait, never a number. */
export function createRouting(options: {
  instanceId: string;
  clock: Clock;
  liveInstances(): Promise<Peer[]>;
}): Routing {
  const { instanceId, clock } = options;
  const doubted = new Map<string, number>();
  let peers: Peer[] = [];
  let freshUntilMs = Number.NEGATIVE_INFINITY;
  let reading: Promise<void> | undefined;

  /** What is known stays in use when the list cannot be read: the database's own answer will say more. */
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
      // The former list will do while the next one is read; a wrong one costs a hop.
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
