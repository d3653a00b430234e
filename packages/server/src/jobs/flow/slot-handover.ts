import * as z from "zod";
import type { Clock } from "../../kernel/clock.ts";
import { every, type Service } from "../../kernel/service.ts";
import type { HotStore } from "../../store/hot-store.ts";
import type { Roster, RosterNode } from "../memory/node-pool.ts";
import type { WaitingHead } from "../memory/wait-queue.ts";
import { exclusionOf } from "../policy/node-selection.ts";
import { countSlots } from "../store/slot-store.ts";
import { postWaiting } from "../store/waiting-store.ts";

/**
 * The jobs that wait at other instances, and whose turn it is when a slot is free.
 *
 * 1. Each instance posts, per pool, the head of each group of its waiting jobs: tenant, service or node, priority, oldest,
 *    how many.
 *    The post is a hash in the store (`v1:pools:{pool:<pool>}:waiting`, one field per instance, TTL 2 s) and a message by
 *    Pub/Sub, which is quicker and may get lost. It is written when it changes, and every 250 ms while jobs wait.
 * 2. Each instance keeps the posts of the others. Without one, an ordinary job costs nothing: no call, no look.
 * 3. Before an instance uses a free slot it compares its job with the posts that fit the node. A job of higher priority, or of
 *    the same and 500 ms older, goes first: the slot is left to that instance by a message (`slot`), and counts as
 *    taken here until the answer (`took`) says what became of it, with the count of the node and a fresh post.
 * 4. The instance that frees a slot does this also when nothing waits there; so does a node's own instance when it hears
 *    a post that one of its free slots fits.
 * 5. An instance that does not answer within 1 s is passed over until its next post; one that cannot use the slot is
 *    passed over with that need for 500 ms. So a slot is never kept for a dead or a mistaken instance for long.
 * 6. Nothing here decides ownership: slots are reserved by the same script as ever. Losing every message costs 250 ms.
 *
 * An instance of release 0.1.0 posts nothing and hears nothing: beside it, order is as it was. In memory there are no others.
 */
export interface Elsewhere extends Service {
  /**
   * Leaves free slots of the node to instances whose waiting job goes before this one (`undefined`: before none).
   * Whether a slot was left: then look again at what is free.
   */
  yields(node: RosterNode, to: { pool: string; job: Ranked | undefined }): boolean;
  /** Leaves what is free on the node to other instances, when nothing here wants it. */
  leaveFree(node: RosterNode, pool: string): void;
  /** The jobs that wait here in this pool have changed. */
  changed(pool: string): void;
  /** A slot of the pool is about to be used: from now on its posts are read every 250 ms. */
  used(pool: string): void;
  /** A reservation on this node was answered. */
  reserved(nodeId: string): void;
}

/** What decides the order between instances. */
export interface Ranked {
  readonly priority: number;
  readonly createdAtMs: number;
}

export interface ElsewhereStory {
  /** The heads of the waiting jobs of this instance, the first first. */
  heads(pool: string): WaitingHead[];
  /** Slots of this node, or of the pool's nodes, may be used now. */
  serve(pool: string): void;
  freed(nodeId: string): void;
}

/** Of two jobs with the same priority the older one goes first when it is older by this. */
export const AGE_TOLERANCE_MS = 500;
const LOOK_INTERVAL_MS = 250;
const POST_TTL_MS = 2_000;
/** A post in which only ages and counts differ from the one before is sent no more often than this. */
const POST_INTERVAL_MS = 50;
const HEADS_MAX = 64;
const ANSWER_LIMIT_MS = 1_000;
const PASSED_OVER_MS = 500;
/** By then a reservation has been answered, or its answer does not matter any more. */
const LEFT_MS_MAX = 2_000;
const SILENT_MAX = 1_000;

/** Service, node (one may be empty), priority, the oldest of that priority, how many there are of it, and their tenant. */
const Head = z.tuple([z.string(), z.string(), z.int(), z.number(), z.int().positive(), z.string()]);
const Heads = z.array(Head).max(HEADS_MAX);
/** As it is written in the store. `s` rises with each post of an instance: an older one replaces nothing. */
const Written = z.object({ s: z.number(), h: Heads });
const Note = z.discriminatedUnion("k", [
  z.object({ k: z.literal("post"), i: z.string(), p: z.string(), s: z.number(), h: Heads }),
  z.object({
    ...{ k: z.literal("slot"), i: z.string(), p: z.string(), id: z.int() },
    ...{ n: z.string(), reserved: z.int().min(0) },
  }),
  z.object({
    ...{ k: z.literal("took"), i: z.string(), p: z.string(), id: z.int() },
    ...{ s: z.number(), h: Heads },
    /** Slots of the node in use; absent when the slot was not used. */
    reserved: z.int().min(0).optional(),
  }),
]);
type Written = z.infer<typeof Written>;
type Note = z.infer<typeof Note>;
type Slot = Extract<Note, { k: "slot" }>;
type Took = Extract<Note, { k: "took" }>;

/** Jobs at another instance with one need and one priority. */
interface Want extends Ranked {
  readonly instanceId: string;
  readonly key: string;
  readonly tenant: string;
  readonly service: string | undefined;
  readonly nodeId: string | undefined;
  /**
   * Less one for each slot that was left to them since the post was heard. A post that was on its way meanwhile may count
   * them again: then a slot too many is left there, and comes back with the answer.
   */
  count: number;
}

interface Post {
  sequence: number;
  wants: Want[];
  untilMs: number;
}

/** A slot that was left to another instance. */
interface Grant {
  nodeId: string;
  instanceId: string;
  want: Want;
  /** The node's count then: a newer one is not replaced by the answer. */
  counts: number;
  untilMs: number;
  takeBack: () => void;
}

export const NOTHING_ELSEWHERE: Elsewhere = {
  yields: () => false,
  leaveFree() {},
  changed() {},
  used() {},
  reserved() {},
  start() {},
  async stop() {},
};

export function createElsewhere(
  options: {
    hot: HotStore;
    instanceId: string;
    clock: Clock;
    roster: Roster;
    onError: (error: unknown) => void;
  },
  story: ElsewhereStory,
): Elsewhere {
  const { hot, instanceId, clock, roster, onError } = options;
  if (hot.kind === "memory") return NOTHING_ELSEWHERE;
  const posts = new Map<string, Map<string, Post>>();
  const grants = new Map<number, Grant>();
  const passedOver = new Map<string, number>();
  /** By instance that did not answer: its last post then. */
  const silentAt = new Map<string, number>();
  /** By node: slots that others have left to this instance, and whom to answer. */
  const left = new Map<string, { slot: Slot; untilMs: number }[]>();
  const usedPools = new Set<string>();
  /** By pool: what was posted last, and when. */
  const posted = new Map<string, { shape: string; atMs: number }>();
  const changedPools = new Set<string>();
  let lastGrant = 0;
  // Also after a restart under the same name it goes on rising, unless the machine's clock was set back.
  let sequence = Math.floor(clock.wallMs() * 1_000);
  let isStopped = false;
  const broadcast = `${hot.prefix}:waiting`;
  const channelOf = (instance: string) => `${hot.prefix}:waiting:${instance}`;

  function send(channel: string, note: Note): void {
    hot.publish(channel, JSON.stringify(note)).catch(onError);
  }

  function headsOf(pool: string): z.infer<typeof Heads> {
    return story
      .heads(pool)
      .slice(0, HEADS_MAX)
      .map(({ tenant, service = "", nodeId = "", priority, oldestMs, count }) => [
        ...([service, nodeId, priority, oldestMs, count, tenant] as const),
      ]);
  }

  function changed(pool: string): void {
    if (changedPools.size === 0) setImmediate(postChanged);
    changedPools.add(pool);
  }

  function postChanged(): void {
    const pools = [...changedPools];
    changedPools.clear();
    if (isStopped) return;
    for (const pool of pools) {
      const heads = headsOf(pool);
      const shape = heads
        .map(([service, node, priority, , , tenant]) => [service, node, priority, tenant])
        .join(" ");
      const former = posted.get(pool);
      const nowMs = clock.monotonicMs();
      if (former?.shape === shape && nowMs - former.atMs < POST_INTERVAL_MS) continue;
      if (!former && heads.length === 0) continue;
      posted.set(pool, { shape, atMs: nowMs });
      send(broadcast, { k: "post", i: instanceId, p: pool, s: ++sequence, h: heads });
    }
  }

  /** Keeps the post of an instance, which replaces its former one. */
  function keep(pool: string, from: string, { s: sequence, h: heads }: Written): void {
    const inPool = posts.get(pool) ?? new Map<string, Post>();
    const known = Math.max(inPool.get(from)?.sequence ?? 0, (silentAt.get(from) ?? -1) + 1);
    if (known > sequence) return;
    silentAt.delete(from);
    const wants = heads.map((head) => {
      const [service, nodeId, priority, oldestMs, count, tenant] = head;
      return {
        ...{ instanceId: from, key: keyOf(from, head), priority, count, tenant },
        createdAtMs: oldestMs,
        service: service || undefined,
        nodeId: nodeId || undefined,
      };
    });
    const untilMs = clock.monotonicMs() + POST_TTL_MS;
    posts.set(pool, inPool.set(from, { sequence, wants, untilMs }));
  }

  function drop(pool: string, from: string): void {
    const inPool = posts.get(pool);
    if (inPool?.delete(from) && inPool.size === 0) posts.delete(pool);
  }

  /** The first of the others' jobs that this node could take now. */
  function firstFor(node: RosterNode, pool: string): Want | undefined {
    const inPool = posts.get(pool);
    if (!inPool) return undefined;
    const nowMs = clock.monotonicMs();
    let first: Want | undefined;
    for (const { wants, untilMs } of inPool.values()) {
      if (untilMs <= nowMs) continue;
      for (const want of wants) {
        if (want.count <= 0 || (want.nodeId && want.nodeId !== node.nodeId)) continue;
        if ((passedOver.get(want.key) ?? 0) > nowMs) continue;
        if (exclusionOf(node, { pool, ...want })) continue;
        if (!first || isBefore(want, first)) first = want;
      }
    }
    return first;
  }

  function yields(
    node: RosterNode,
    { pool, job }: { pool: string; job: Ranked | undefined },
  ): boolean {
    // A slot that was left to this instance is not passed on.
    if (!posts.has(pool) || left.has(node.nodeId)) return false;
    const want = firstFor(node, pool);
    if (!want || (job && !goesFirst(want, job))) return false;
    grant(node, pool, want);
    return true;
  }

  function grant(node: RosterNode, pool: string, want: Want): void {
    const id = ++lastGrant;
    const { nodeId } = node;
    want.count -= 1;
    grants.set(id, {
      ...{ nodeId, want, instanceId: want.instanceId, counts: roster.countsOf(nodeId) },
      untilMs: clock.monotonicMs() + ANSWER_LIMIT_MS,
      takeBack: roster.asking(nodeId, 1),
    });
    const reserved = roster.knownOf(nodeId);
    send(channelOf(want.instanceId), {
      ...{ k: "slot", i: instanceId, p: pool, id, n: nodeId, reserved },
    });
  }

  function hear(text: string): void {
    const note = Note.safeParse(jsonOf(text)).data;
    if (!note || note.i === instanceId || isStopped) return;
    if (note.k === "slot") useSlot(note);
    else if (note.k === "took") hearAnswer(note);
    else {
      keep(note.p, note.i, note);
      offerFree(note.p);
    }
  }

  /** The node's own instance knows best what is free there. */
  function offerFree(pool: string): void {
    story.serve(pool);
    if (!posts.has(pool)) return;
    for (const node of roster.inPool(pool))
      if (node.instanceId === instanceId) leaveFree(node, pool);
  }

  function leaveFree(node: RosterNode, pool: string): void {
    if (!posts.has(pool)) return;
    for (let slots = node.capacity - node.reserved; slots > 0; slots--)
      if (!yields(node, { pool, job: undefined })) return;
  }

  function useSlot(slot: Slot): void {
    const { n: nodeId, p: pool } = slot;
    const node = roster.get(nodeId);
    const untilMs = clock.monotonicMs() + LEFT_MS_MAX;
    left.set(nodeId, [...(left.get(nodeId) ?? []), { slot, untilMs }]);
    // The answer to a reservation that is under way will bring a newer count.
    if (node && roster.askingOf(nodeId) === 0) roster.counted(nodeId, slot.reserved);
    useLeft(nodeId, pool);
  }

  /** A reservation that is under way is the answer, also one that began before the slot was left to this instance. */
  function useLeft(nodeId: string, pool: string): void {
    const node = roster.get(nodeId);
    const slots = left.get(nodeId)?.length ?? 0;
    // The last answer may be older than the freeing of a slot that is left to this instance.
    if (node && roster.askingOf(nodeId) === 0)
      roster.counted(nodeId, Math.max(0, Math.min(roster.knownOf(nodeId), node.capacity - slots)));
    story.serve(pool);
    if (!node || roster.askingOf(nodeId) === 0) while (left.has(nodeId)) answer(nodeId, false);
  }

  function hearReserved(nodeId: string): void {
    const [slot] = left.get(nodeId) ?? [];
    if (!slot) return;
    answer(nodeId, true);
    if (left.has(nodeId)) setImmediate(() => useLeft(nodeId, slot.slot.p));
  }

  function answer(nodeId: string, isUsed: boolean): void {
    const [next, ...others] = left.get(nodeId) ?? [];
    if (!next) return;
    const { slot } = next;
    if (others.length > 0) left.set(nodeId, others);
    else left.delete(nodeId);
    send(channelOf(slot.i), {
      ...{ k: "took", i: instanceId, p: slot.p, id: slot.id },
      ...{ s: ++sequence, h: headsOf(slot.p) },
      ...(isUsed && { reserved: roster.knownOf(nodeId) }),
    });
  }

  function hearAnswer(took: Took): void {
    const { p: pool, i: from, id, h: heads, reserved } = took;
    const given = grants.get(id);
    if (!given || given.instanceId !== from) return;
    grants.delete(id);
    const { nodeId, want } = given;
    keep(pool, from, took);
    const stillWaits = heads.some((head) => want.key === keyOf(from, head));
    if (reserved === undefined && stillWaits)
      passedOver.set(want.key, clock.monotonicMs() + PASSED_OVER_MS);
    const isNewest = roster.countsOf(nodeId) === given.counts;
    if (reserved !== undefined && isNewest) roster.counted(nodeId, reserved);
    if (reserved === undefined || isNewest) {
      takeBack(given);
      return;
    }
    // Another count came in between, and nothing says which of the two is the newer.
    countSlots(hot, nodeId)
      .then((count) => roster.counted(nodeId, count), onError)
      .finally(() => takeBack(given));
  }

  function takeBack(given: Grant): void {
    given.takeBack();
    if (!isStopped) story.freed(given.nodeId);
  }

  /** Posts again what still waits here, reads the posts of the others, and takes back what was not answered. */
  async function look(): Promise<void> {
    forget();
    const pools = new Set([...posted.keys(), ...posts.keys(), ...usedPools]);
    usedPools.clear();
    await Promise.all([...pools].map(lookAt));
  }

  async function lookAt(pool: string): Promise<void> {
    const heads = headsOf(pool);
    const text = heads.length > 0 ? JSON.stringify({ s: ++sequence, h: heads }) : "";
    if (heads.length > 0) {
      posted.delete(pool);
      changed(pool);
    } else if (posted.get(pool)?.shape === "") posted.delete(pool);
    const others = await postWaiting(hot, { pool, instanceId, heads: text, ttlMs: POST_TTL_MS });
    for (const [from, written] of others) {
      const known = Written.safeParse(jsonOf(written));
      if (known.success) keep(pool, from, known.data);
    }
    offerFree(pool);
  }

  function forget(): void {
    const nowMs = clock.monotonicMs();
    for (const [key, untilMs] of passedOver) if (untilMs <= nowMs) passedOver.delete(key);
    for (const [nodeId, [first]] of left) if (first && first.untilMs <= nowMs) left.delete(nodeId);
    for (const [pool, inPool] of posts)
      for (const [from, { untilMs }] of inPool) if (untilMs <= nowMs) drop(pool, from);
    for (const [id, given] of grants) {
      if (given.untilMs > nowMs) continue;
      grants.delete(id);
      passOver(given.instanceId);
      takeBack(given);
    }
  }

  /** Drops what an instance posted before it stopped answering. */
  function passOver(silent: string): void {
    for (const [pool, inPool] of posts) {
      const last = inPool.get(silent)?.sequence ?? 0;
      silentAt.set(silent, Math.max(silentAt.get(silent) ?? 0, last));
      drop(pool, silent);
    }
    if (silentAt.size > SILENT_MAX) silentAt.clear();
  }

  const loop = every(LOOK_INTERVAL_MS, look, { clock, onError });

  return {
    yields,
    leaveFree,
    changed,
    used: (pool) => void usedPools.add(pool),
    reserved(nodeId) {
      if (left.size > 0) hearReserved(nodeId);
    },
    start() {
      hot.subscribe(broadcast, hear).catch(onError);
      hot.subscribe(channelOf(instanceId), hear).catch(onError);
      loop.start();
    },
    async stop() {
      isStopped = true;
      await loop.stop();
      for (const given of grants.values()) takeBack(given);
      const pools = [...posted.keys()];
      for (const pool of pools)
        send(broadcast, { k: "post", i: instanceId, p: pool, s: ++sequence, h: [] });
      const none = { instanceId, heads: "", ttlMs: POST_TTL_MS };
      await Promise.all(pools.map((pool) => postWaiting(hot, { pool, ...none }))).catch(() => {});
    },
  };
}

const keyOf = (from: string, [service, nodeId, , , , tenant]: z.infer<typeof Head>): string =>
  `${from} ${tenant} ${service} ${nodeId}`;

const isBefore = (a: Ranked, b: Ranked): boolean =>
  a.priority === b.priority ? a.createdAtMs < b.createdAtMs : a.priority > b.priority;

/** Whether a job that waits at another instance goes before one of this instance. */
export const goesFirst = (other: Ranked, own: Ranked): boolean =>
  other.priority > own.priority ||
  (other.priority === own.priority && other.createdAtMs + AGE_TOLERANCE_MS <= own.createdAtMs);

/** Undefined for what is no JSON: a text that another program wrote under our keys is ignored. */
function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
