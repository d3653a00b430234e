import type { Clock } from "../../kernel/clock.ts";
import { exclusionOf } from "../policy/node-selection.ts";
import type { PoolNode } from "./node-pool.ts";

/** What decides the order of jobs between instances. */
export interface Ranked {
  readonly priority: number;
  readonly createdMs: number;
}

/** Service, node (one may be empty), priority, the oldest job of that priority, their number, and their tenant. */
export type Head = [string, string, number, number, number, string];

/** The heads of an instance's wait queue. `s` rises with each post of an instance: an older post replaces nothing. */
export interface Post {
  s: number;
  h: Head[];
}

/** Jobs at another instance with one need and one priority. */
export interface PeerWant extends Ranked {
  readonly instanceId: string;
  readonly key: string;
  readonly tenant: string;
  readonly service: string | undefined;
  readonly nodeId: string | undefined;
  /**
   * Less one for each slot granted since the post arrived. A post that was on its way meanwhile may count those jobs again:
   * then a slot too many is granted, and comes back with the answer.
   */
  count: number;
}

interface KnownPost {
  sequence: number;
  wants: PeerWant[];
  untilMs: number;
}

/** With the same priority, the older job goes first if it is older by this. */
export const AGE_TOLERANCE_MS = 500;
export const POST_TTL_MS = 2_000;
const PASSED_OVER_MS = 500;
const SILENT_MAX = 1_000;

/**
 * The heads of the wait queues of other instances, as they posted them. A post is valid for 2 s, and replaced only by one
 * with a higher sequence number of the same instance.
 */
export class PeerQueues {
  readonly #clock: Clock;
  /** By pool and instance. */
  readonly #posts = new Map<string, Map<string, KnownPost>>();
  /** By key of a want that could not use a slot: until when it is passed over. */
  readonly #passedOver = new Map<string, number>();
  /** By instance that did not answer: the sequence of its last post then. */
  readonly #silentAt = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  has(pool: string): boolean {
    return this.#posts.has(pool);
  }

  pools(): Iterable<string> {
    return this.#posts.keys();
  }

  keep(pool: string, from: string, { s: sequence, h: heads }: Post): void {
    const inPool = this.#posts.get(pool) ?? new Map<string, KnownPost>();
    const known = Math.max(inPool.get(from)?.sequence ?? 0, (this.#silentAt.get(from) ?? -1) + 1);
    if (known > sequence) return;
    this.#silentAt.delete(from);
    const wants = heads.map((head) => wantOf(from, head));
    const untilMs = this.#clock.monotonicMs() + POST_TTL_MS;
    this.#posts.set(pool, inPool.set(from, { sequence, wants, untilMs }));
  }

  /** The first of the others' jobs that this node could take now. */
  firstFor(node: PoolNode, pool: string): PeerWant | undefined {
    const inPool = this.#posts.get(pool);
    if (!inPool) return undefined;
    const nowMs = this.#clock.monotonicMs();
    let first: PeerWant | undefined;
    for (const { wants, untilMs } of inPool.values()) {
      if (untilMs <= nowMs) continue;
      for (const want of wants) {
        if (want.count <= 0 || (want.nodeId && want.nodeId !== node.nodeId)) continue;
        if ((this.#passedOver.get(want.key) ?? 0) > nowMs) continue;
        if (exclusionOf(node, { pool, ...want })) continue;
        if (!first || isBefore(want, first)) first = want;
      }
    }
    return first;
  }

  /** Passes over a want that could not use a slot, for 500 ms. */
  passOver(key: string): void {
    this.#passedOver.set(key, this.#clock.monotonicMs() + PASSED_OVER_MS);
  }

  /** Drops the posts of an instance that does not answer, until its next post. */
  silence(instanceId: string): void {
    for (const [pool, inPool] of this.#posts) {
      const last = inPool.get(instanceId)?.sequence ?? 0;
      this.#silentAt.set(instanceId, Math.max(this.#silentAt.get(instanceId) ?? 0, last));
      this.#drop(pool, instanceId);
    }
    if (this.#silentAt.size > SILENT_MAX) this.#silentAt.clear();
  }

  forgetExpired(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const [key, untilMs] of this.#passedOver)
      if (untilMs <= nowMs) this.#passedOver.delete(key);
    for (const [pool, inPool] of this.#posts)
      for (const [from, { untilMs }] of inPool) if (untilMs <= nowMs) this.#drop(pool, from);
  }

  #drop(pool: string, from: string): void {
    const inPool = this.#posts.get(pool);
    if (inPool?.delete(from) && inPool.size === 0) this.#posts.delete(pool);
  }
}

const wantOf = (from: string, head: Head): PeerWant => {
  const [service, nodeId, priority, oldestMs, count, tenant] = head;
  return {
    instanceId: from,
    key: wantKey(from, head),
    priority,
    count,
    tenant,
    createdMs: oldestMs,
    service: service || undefined,
    nodeId: nodeId || undefined,
  };
};

export const wantKey = (from: string, [service, nodeId, , , , tenant]: Head): string =>
  `${from} ${tenant} ${service} ${nodeId}`;

const isBefore = (a: Ranked, b: Ranked): boolean =>
  a.priority === b.priority ? a.createdMs < b.createdMs : a.priority > b.priority;

/** Whether a job that waits at another instance goes before one of this instance. */
export const goesFirst = (other: Ranked, own: Ranked): boolean =>
  other.priority > own.priority ||
  (other.priority === own.priority && other.createdMs + AGE_TOLERANCE_MS <= own.createdMs);
