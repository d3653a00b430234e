import type { Clock } from "../../kernel/clock.ts";
import { every, type Service } from "../../kernel/service.ts";
import type { HotStore } from "../../store/hot-store.ts";
import type { NodePool, PoolNode } from "../memory/node-pool.ts";
import {
  goesFirst,
  PeerQueues,
  type PeerWant,
  POST_TTL_MS,
  type Head as PostedHead,
  type Ranked,
  wantKey,
} from "../memory/peer-queues.ts";
import type { WaitingHead } from "../memory/wait-queue.ts";
import { countSlots } from "../store/slot-store.ts";
import { postWaiting } from "../store/waiting-store.ts";
import {
  type HandoverMessage,
  HEADS_MAX,
  parseHandoverMessage,
  parseStoredPost,
  type SlotMessage,
  type TookMessage,
} from "./handover-messages.ts";
import type { Next } from "./step.ts";

/**
 * Hands free slots to jobs that wait at other instances, so that the order of jobs holds across instances.
 *
 * 1. Each instance posts, per pool, the head of each group of its waiting jobs: tenant, service or node, priority, oldest,
 *    how many. The post is a hash in the store (`v1:pools:{pool:<pool>}:waiting`, one field per instance, TTL 2 s) and a
 *    message by Pub/Sub, which is faster and may get lost. It is sent when it changes, and every 250 ms while jobs wait.
 * 2. Each instance keeps the posts of the others. Without posts, an ordinary job costs no call and no check.
 * 3. Before an instance uses a free slot it compares its job with the posts that fit the node. A job of higher priority, or of
 *    the same and 500 ms older, goes first: the slot is granted to its instance by a message (`slot`), and counts as taken
 *    until the answer (`took`), which brings the node's count and a fresh post.
 * 4. The instance that frees a slot does the same when no job waits there; so does a node's own instance when it receives a
 *    post that one of its free slots fits.
 * 5. An instance that does not answer within 1 s is passed over until its next post; one that cannot use the slot is passed
 *    over with that need for 500 ms. So no slot is kept for long for an instance that is dead or mistaken.
 * 6. Nothing here decides ownership: slots are reserved by the same script as always. Losing every message costs 250 ms.
 *
 * An instance of release 0.1.0 neither posts nor answers; beside it, order is as it was. In memory there is no other instance.
 */
export interface SlotHandover extends Service {
  /**
   * Grants a free slot of the node to an instance whose waiting job goes before this one (`undefined`: before none). `true` if
   * a slot was granted: then check again which slots are free.
   */
  yields(node: PoolNode, to: { pool: string; job: Ranked | undefined }): boolean;
  /** Grants the free slots of the node to other instances, when no job here needs them. */
  offerRest(node: PoolNode, pool: string): void;
  /** The waiting jobs of this pool have changed. */
  queueChanged(pool: string): void;
  /** A slot of the pool is about to be used: from now on its posts are read every 250 ms. */
  used(pool: string): void;
  /** A reservation on this node was answered. */
  reserved(nodeId: string): void;
}

const POLL_INTERVAL_MS = 250;
/** A post that differs from the one before only in ages and counts is sent no more often than this. */
const POST_INTERVAL_MS = 50;
const ANSWER_LIMIT_MS = 1_000;
/** By then a reservation has been answered, or its answer does not matter any more. */
const OFFERED_MS_MAX = 2_000;

/** A slot granted to another instance. */
interface Grant {
  nodeId: string;
  instanceId: string;
  want: PeerWant;
  /** The number of the node's count then: a newer count is not replaced by the answer. */
  counts: number;
  untilMs: number;
}

export const NO_HANDOVER: SlotHandover = {
  yields: () => false,
  offerRest() {},
  queueChanged() {},
  used() {},
  reserved() {},
  start() {},
  async stop() {},
};

export interface SlotHandoverOptions {
  hot: HotStore;
  instanceId: string;
  clock: Clock;
  nodePool: NodePool;
  onError: (error: unknown) => void;
  /** The heads of this instance's wait queue, in order. */
  heads: (pool: string) => WaitingHead[];
}

export const createSlotHandover = (options: SlotHandoverOptions, next: Next): SlotHandover =>
  options.hot.kind === "memory" ? NO_HANDOVER : new PeerHandover(options, next);

class PeerHandover implements SlotHandover {
  readonly #options: SlotHandoverOptions;
  readonly #next: Next;
  readonly #peers: PeerQueues;
  readonly #grants = new Map<number, Grant>();
  /** By node: slots that other instances granted to this one and that are not answered. */
  readonly #granted = new Map<string, { slot: SlotMessage; untilMs: number }[]>();
  readonly #usedPools = new Set<string>();
  /** By pool: the last post, and when. */
  readonly #posted = new Map<string, { shape: string; atMs: number }>();
  readonly #changedPools = new Set<string>();
  readonly #loop: Service;
  #lastGrant = 0;
  // Keeps rising after a restart under the same name, unless the machine's clock was set back.
  #sequence: number;
  #isStopped = false;

  constructor(options: SlotHandoverOptions, next: Next) {
    this.#options = options;
    this.#next = next;
    this.#peers = new PeerQueues(options.clock);
    this.#sequence = Math.floor(options.clock.wallMs() * 1_000);
    this.#loop = every(POLL_INTERVAL_MS, () => this.#poll(), options);
  }

  start(): void {
    const { hot, instanceId, onError } = this.#options;
    const receive = (text: string) => this.#receive(text);
    hot.subscribe(this.#broadcast, receive).catch(onError);
    hot.subscribe(this.#channelOf(instanceId), receive).catch(onError);
    this.#loop.start();
  }

  async stop(): Promise<void> {
    const { hot, instanceId } = this.#options;
    this.#isStopped = true;
    await this.#loop.stop();
    for (const grant of this.#grants.values()) this.#takeBack(grant);
    const pools = [...this.#posted.keys()];
    for (const pool of pools) this.#sendPost(pool, []);
    const none = { instanceId, heads: "", ttlMs: POST_TTL_MS };
    await Promise.all(pools.map((pool) => postWaiting(hot, { pool, ...none }))).catch(() => {});
  }

  yields(node: PoolNode, { pool, job }: { pool: string; job: Ranked | undefined }): boolean {
    // A slot that was granted to this instance is not passed on.
    if (!this.#peers.has(pool) || this.#granted.has(node.nodeId)) return false;
    const want = this.#peers.firstFor(node, pool);
    if (!want || (job && !goesFirst(want, job))) return false;
    this.#grant(node, pool, want);
    return true;
  }

  offerRest(node: PoolNode, pool: string): void {
    if (!this.#peers.has(pool)) return;
    for (let slots = node.capacity - node.reserved; slots > 0; slots--)
      if (!this.yields(node, { pool, job: undefined })) return;
  }

  queueChanged(pool: string): void {
    if (this.#changedPools.size === 0) setImmediate(() => this.#postChanged());
    this.#changedPools.add(pool);
  }

  used(pool: string): void {
    this.#usedPools.add(pool);
  }

  reserved(nodeId: string): void {
    if (this.#granted.size === 0) return;
    const [first] = this.#granted.get(nodeId) ?? [];
    if (!first) return;
    this.#answer(nodeId, true);
    if (this.#granted.has(nodeId)) setImmediate(() => this.#useGranted(nodeId, first.slot.p));
  }

  get #broadcast(): string {
    return `${this.#options.hot.prefix}:waiting`;
  }

  #channelOf(instanceId: string): string {
    return `${this.#options.hot.prefix}:waiting:${instanceId}`;
  }

  #send(channel: string, message: HandoverMessage): void {
    const { hot, onError } = this.#options;
    hot.publish(channel, JSON.stringify(message)).catch(onError);
  }

  #sendPost(pool: string, heads: PostedHead[]): void {
    const i = this.#options.instanceId;
    this.#send(this.#broadcast, { k: "post", i, p: pool, s: ++this.#sequence, h: heads });
  }

  #headsOf(pool: string): PostedHead[] {
    return this.#options
      .heads(pool)
      .slice(0, HEADS_MAX)
      .map(({ tenant, service = "", nodeId = "", priority, oldestMs, count }) => [
        ...([service, nodeId, priority, oldestMs, count, tenant] as const),
      ]);
  }

  #postChanged(): void {
    const pools = [...this.#changedPools];
    this.#changedPools.clear();
    if (this.#isStopped) return;
    for (const pool of pools) {
      const heads = this.#headsOf(pool);
      const shape = heads
        .map(([service, node, priority, , , tenant]) => [service, node, priority, tenant])
        .join(" ");
      const former = this.#posted.get(pool);
      const nowMs = this.#options.clock.monotonicMs();
      if (former?.shape === shape && nowMs - former.atMs < POST_INTERVAL_MS) continue;
      if (!former && heads.length === 0) continue;
      this.#posted.set(pool, { shape, atMs: nowMs });
      this.#sendPost(pool, heads);
    }
  }

  #grant({ nodeId }: PoolNode, pool: string, want: PeerWant): void {
    const { nodePool, clock, instanceId } = this.#options;
    const id = ++this.#lastGrant;
    want.count -= 1;
    nodePool.requesting(nodeId, 1);
    this.#grants.set(id, {
      ...{ nodeId, want, instanceId: want.instanceId, counts: nodePool.countsOf(nodeId) },
      untilMs: clock.monotonicMs() + ANSWER_LIMIT_MS,
    });
    const reserved = nodePool.knownOf(nodeId);
    this.#send(this.#channelOf(want.instanceId), {
      ...{ k: "slot", i: instanceId, p: pool, id, n: nodeId, reserved },
    });
  }

  #receive(text: string): void {
    const message = parseHandoverMessage(text);
    if (!message || message.i === this.#options.instanceId || this.#isStopped) return;
    if (message.k === "slot") this.#useSlot(message);
    else if (message.k === "took") this.#endGrant(message);
    else {
      this.#peers.keep(message.p, message.i, message);
      this.#offerFree(message.p);
    }
  }

  /** The node's own instance knows best which of its slots are free. */
  #offerFree(pool: string): void {
    void this.#next({ do: "serve", pool });
    if (!this.#peers.has(pool)) return;
    const { nodePool, instanceId } = this.#options;
    for (const node of nodePool.inPool(pool))
      if (node.instanceId === instanceId) this.offerRest(node, pool);
  }

  #useSlot(slot: SlotMessage): void {
    const { nodePool, clock } = this.#options;
    const { n: nodeId, p: pool } = slot;
    const untilMs = clock.monotonicMs() + OFFERED_MS_MAX;
    this.#granted.set(nodeId, [...(this.#granted.get(nodeId) ?? []), { slot, untilMs }]);
    // The answer to a reservation in flight will bring a newer count.
    if (nodePool.get(nodeId) && nodePool.requestedOf(nodeId) === 0)
      nodePool.counted(nodeId, slot.reserved);
    this.#useGranted(nodeId, pool);
  }

  /** A reservation in flight is the answer, also one that began before the slot was granted. */
  #useGranted(nodeId: string, pool: string): void {
    const { nodePool } = this.#options;
    const node = nodePool.get(nodeId);
    const slots = this.#granted.get(nodeId)?.length ?? 0;
    // The last answer may be older than the release of the granted slot.
    if (node && nodePool.requestedOf(nodeId) === 0) {
      const known = Math.min(nodePool.knownOf(nodeId), node.capacity - slots);
      nodePool.counted(nodeId, Math.max(0, known));
    }
    void this.#next({ do: "serve", pool });
    if (!node || nodePool.requestedOf(nodeId) === 0)
      while (this.#granted.has(nodeId)) this.#answer(nodeId, false);
  }

  #answer(nodeId: string, isUsed: boolean): void {
    const { instanceId, nodePool } = this.#options;
    const [first, ...others] = this.#granted.get(nodeId) ?? [];
    if (!first) return;
    const { slot } = first;
    if (others.length > 0) this.#granted.set(nodeId, others);
    else this.#granted.delete(nodeId);
    this.#send(this.#channelOf(slot.i), {
      ...{ k: "took", i: instanceId, p: slot.p, id: slot.id },
      ...{ s: ++this.#sequence, h: this.#headsOf(slot.p) },
      ...(isUsed && { reserved: nodePool.knownOf(nodeId) }),
    });
  }

  #endGrant(took: TookMessage): void {
    const { hot, nodePool, onError } = this.#options;
    const { p: pool, i: from, id, h: heads, reserved } = took;
    const grant = this.#grants.get(id);
    if (!grant || grant.instanceId !== from) return;
    this.#grants.delete(id);
    const { nodeId, want } = grant;
    this.#peers.keep(pool, from, took);
    const stillWaits = heads.some((head) => want.key === wantKey(from, head));
    if (reserved === undefined && stillWaits) this.#peers.passOver(want.key);
    const isNewest = nodePool.countsOf(nodeId) === grant.counts;
    if (reserved !== undefined && isNewest) nodePool.counted(nodeId, reserved);
    if (reserved === undefined || isNewest) {
      this.#takeBack(grant);
      return;
    }
    // Another count came in between, and it is unknown which of the two is newer.
    countSlots(hot, nodeId)
      .then((count) => nodePool.counted(nodeId, count), onError)
      .finally(() => this.#takeBack(grant));
  }

  #takeBack(grant: Grant): void {
    this.#options.nodePool.answered(grant.nodeId, 1);
    if (!this.#isStopped) void this.#next({ do: "serve_node", nodeId: grant.nodeId });
  }

  /** Posts the jobs that still wait here, reads the posts of the others, and takes back grants without an answer. */
  async #poll(): Promise<void> {
    this.#forgetExpired();
    const pools = new Set([...this.#posted.keys(), ...this.#peers.pools(), ...this.#usedPools]);
    this.#usedPools.clear();
    await Promise.all([...pools].map((pool) => this.#pollPool(pool)));
  }

  async #pollPool(pool: string): Promise<void> {
    const { hot, instanceId } = this.#options;
    const heads = this.#headsOf(pool);
    const text = heads.length > 0 ? JSON.stringify({ s: ++this.#sequence, h: heads }) : "";
    if (heads.length > 0) {
      this.#posted.delete(pool);
      this.queueChanged(pool);
    } else if (this.#posted.get(pool)?.shape === "") this.#posted.delete(pool);
    const others = await postWaiting(hot, { pool, instanceId, heads: text, ttlMs: POST_TTL_MS });
    for (const [from, stored] of others) {
      const post = parseStoredPost(stored);
      if (post) this.#peers.keep(pool, from, post);
    }
    this.#offerFree(pool);
  }

  #forgetExpired(): void {
    const nowMs = this.#options.clock.monotonicMs();
    this.#peers.forgetExpired();
    for (const [nodeId, [first]] of this.#granted)
      if (first && first.untilMs <= nowMs) this.#granted.delete(nodeId);
    for (const [id, grant] of this.#grants) {
      if (grant.untilMs > nowMs) continue;
      this.#grants.delete(id);
      this.#peers.silence(grant.instanceId);
      this.#takeBack(grant);
    }
  }
}
