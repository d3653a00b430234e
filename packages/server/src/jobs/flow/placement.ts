import { failpoint } from "#failpoint";
import { every, type Service } from "../../kernel/service.ts";
import { assignText, updateFrame } from "../api/frames.ts";
import { isStoreDown, type JobsContext } from "../context.ts";
import type { RosterNode } from "../memory/node-pool.ts";
import type { LiveJob } from "../memory/tracked-jobs.ts";
import type { Openings } from "../memory/wait-queue.ts";
import type { RetryReason } from "../meter.ts";
import { countExclusions } from "../policy/node-selection.ts";
import { offersOf } from "../policy/offers.ts";
import { persistJob, readJob } from "../store/job-store.ts";
import type { SlotAnswer, WantedSlot } from "../store/slot-store.ts";
import { advance } from "../store/transition-store.ts";
import type { Turns } from "../turns/turns.ts";
import { ALONE_WAIT_MS, createChoosing } from "./node-choice.ts";
import { createSlotCounts } from "./slot-counts.ts";
import type { Slots } from "./slots.ts";

/** Brings jobs that are CREATED to nodes. */
export interface Placement extends Service {
  /** Finds a node for a job in hand, or lets it wait. Never rejects: what fails here is tried again. */
  place(job: LiveJob, ahead?: AheadSlot): void;
  /**
   * Asks for a slot while the job is still being written down, so that the answers come together. `undefined`: there is
   * none to ask for, or others wait already. Whoever does not place the job then gives the slot back.
   */
  askAhead(job: NewcomerJob): AheadSlot | undefined;
  /** As `place`, with this node first. */
  offer(job: LiveJob, node: RosterNode): void;
  /** Offers free slots of the pool to the jobs that wait here. */
  serve(pool: string): void;
  /** Slots of this node may be free: offers them to waiting jobs, here or at another instance. */
  freed(nodeId: string): void;
  /** The alarm of a job that waits for the node of its turn. */
  onPatience(jobId: string): void;
  /** The fleet changed: somebody may have come whom others wait for. */
  look(): void;
}

/** A job that is not tracked yet: it may turn out to be another one's duplicate. `createdAtMs`: later than all others. */
export type NewcomerJob = WantedSlot &
  Pick<LiveJob, "tenant" | "pool" | "priority" | "createdAtMs">;

export interface AheadSlot {
  readonly node: RosterNode;
  readonly answer: Promise<SlotAnswer>;
  giveBack(): void;
}

export interface PlacementStory {
  /** The attempt came to nothing before the node heard of it. */
  retry(job: LiveJob, reason: RetryReason): void;
  /** The record is gone: its store was emptied. */
  vanished(job: LiveJob): void;
}

/** Before the name of a job in the alarms of an instance: its patience with the node of its turn. */
export const PATIENCE_ALARM = "patience ";

/** How often those who wait are looked after although nothing was heard of a free slot. */
const LOOK_INTERVAL_MS = 250;
/** How often slots are counted although nothing waits. */
const COUNT_INTERVAL_MS = 1_000;
/** How long a node is believed that it cannot serve what it was asked for, when only the store said so. */
const MARK_TRUST_MS = 5_000;
/** A larger payload is not kept in memory while its job waits. */
const KEPT_PAYLOAD_LENGTH_MAX = 8_192;

export function createPlacement(
  context: JobsContext,
  { slots, turns }: { slots: Slots; turns: Turns },
  story: PlacementStory,
): Placement {
  const { hot, instanceId, clock, log, roster, waiting, book, deadlines, meter } = context;
  const { elsewhere } = context;
  const [countFull, countAll] = [createSlotCounts(context), createSlotCounts(context)];
  const { choose, pick, forgetStrangers } = createChoosing(context, turns);

  function askAhead(job: NewcomerJob): AheadSlot | undefined {
    if (hasRivals(job.pool)) return undefined;
    const node = pick(job);
    if (!node) return undefined;
    elsewhere.used(job.pool);
    const answer = slots.reserve(node, job);
    // With the store away nobody knows whether it was reserved. Then it runs out by itself.
    const giveBack = () => void answer.then(() => slots.free(node.nodeId, job)).catch(() => {});
    answer.catch(() => {}); // whoever places the job hears of it
    return { node, answer, giveBack };
  }

  function place(job: LiveJob, ahead?: AheadSlot): void {
    if (ahead) return void offer(job, ahead.node, ahead.answer);
    // Nobody goes past those who wait already; `serve` takes them in their order.
    const node = hasRivals(job.pool) ? undefined : choose(job).node;
    if (node) return void offer(job, node);
    wait(job);
    serve(job.pool);
  }

  /**
   * Whether jobs wait that a node of the pool could take. Those of tenants that none of its nodes serves are no rivals:
   * however many there are, they cost the others nothing.
   */
  function hasRivals(pool: string): boolean {
    if (waiting.sizeOf(pool) === 0) return false;
    const offers = roster.offersIn(pool);
    for (const tenant of waiting.tenantsIn(pool)) if (offers.to(tenant)) return true;
    return false;
  }

  /** Without a free slot in the pool it costs one look at the nodes, however many jobs wait. */
  function serve(pool: string): void {
    const openings = hasRivals(pool) ? openingsOf(roster.inPool(pool)) : undefined;
    if (!openings) return;
    waiting.serve(pool, openings, (job) => {
      const choice = choose(job);
      if (!choice.node) return choice.wait;
      void offer(job, choice.node);
      return "taken";
    });
  }

  /** `undefined` when no node has a free slot. */
  function openingsOf(nodes: Iterable<RosterNode>): Openings | undefined {
    const free = [...nodes].filter(canTake);
    return free.length > 0 ? { offers: offersOf(free.map(whatIsAvailable)), isOpen } : undefined;
  }

  /** A node that has left or is draining is not waited for either: the jobs of its turns go elsewhere. */
  function isOpen(nodeId: string): boolean {
    const node = roster.get(nodeId);
    return !node?.online || node.draining || canTake(node);
  }

  function wait(job: LiveJob): void {
    if (waiting.has(job.jobId)) return;
    if (job.payload && job.payload.length > KEPT_PAYLOAD_LENGTH_MAX) job.payload = undefined;
    waiting.add(job);
    const waitedMs = clock.monotonicMs() - job.attemptSinceMs;
    // At the end of its patience it goes the ordinary way, and not only when somebody looks.
    const patienceMs = patienceOf(job) - waitedMs;
    if (patienceMs > 0) deadlines.set(`${PATIENCE_ALARM}${job.jobId}`, patienceMs + 1);
    else waiting.release(job.jobId);
    deadlines.set(job.jobId, job.pendingTimeoutMs - waitedMs);
    // Until now the record would run out by itself; the job may wait for longer than that.
    persistJob(hot, job.jobId).catch(() => {});
  }

  /** How long it waits for the one node, or for one of its own. */
  function patienceOf({ turnId, isSuspect }: LiveJob): number {
    if (turnId) return context.settings.affinityWaitMs;
    return isSuspect ? ALONE_WAIT_MS : 0;
  }

  /** One try with one node. Refused, it looks for the next. */
  async function offer(
    job: LiveJob,
    node: RosterNode,
    reserved: Promise<SlotAnswer> = slots.reserve(node, job),
  ): Promise<void> {
    try {
      turns.deciding(job);
      elsewhere.used(job.pool);
      const answer = await reserved;
      elsewhere.reserved(node.nodeId);
      const settled = answer === "reserved" ? await turns.settle(job, node.nodeId) : "refused";
      if (job.turnId) hear(job);
      if (settled === "here") return await dispatch(job, node);
      // It is the turn's other node that it should go to; or here there is no room.
      if (settled === "elsewhere") slots.free(node.nodeId, job).catch(() => {});
      if (answer === "unavailable" && job.service)
        roster.mark(node.nodeId, job.service, MARK_TRUST_MS);
      place(job);
    } catch (error) {
      elsewhere.reserved(node.nodeId);
      turns.decided(job);
      if (!isStoreDown(error))
        log.error({ event: "job.not-placed", jobId: job.jobId, error }, "will be tried again");
      // Not at once: while the store is away each look finds the same. The index knows the job too.
      if (book.get(job.jobId) === job && job.state === "CREATED") wait(job);
    }
  }

  /** Where the turn goes is known now, or somebody else has to find out: the others of the turn need not wait for this. */
  function hear(job: LiveJob): void {
    turns.decided(job);
    if (waiting.sizeOf(job.pool) > 0) setImmediate(() => serve(job.pool));
  }

  async function dispatch(job: LiveJob, node: RosterNode): Promise<void> {
    const { jobId, attemptId } = job;
    const { nodeId } = node;
    await failpoint("dispatch.after-reserve");
    const steps = [{ event: "dispatched", affinity: job.affinity }] as const;
    const answered = await advance(hot, { jobId, attemptId, nodeId, instanceId, steps });
    const answer = answered.outcome === "absent" ? "absent" : answered.answers[0];
    if (answer !== "applied" && answer !== "duplicate") {
      // It ended while it waited, or another instance was faster with another node.
      if (book.drop(job)) deadlines.clear(jobId);
      if (answer === "absent") story.vanished(job);
      return slots.free(nodeId, { jobId, attemptId });
    }
    await failpoint("dispatch.after-dispatched");
    if (book.get(jobId) !== job) return; // cancelled in this very moment; whoever did it frees the slot
    Object.assign(job, { state: "DISPATCHED", nodeId });
    deadlines.set(jobId, job.ackTimeoutMs);
    meter.dispatched((clock.monotonicMs() - job.sinceMs) / 1_000);
    meter.affinity(job.affinity);
    context.tracing.attemptBegun(job);
    turns.placedOrEnded(job);
    if (job.sessionId)
      context.telling.tell(
        job.sessionId,
        updateFrame({ jobId, state: "DISPATCHED", attemptId, nodeId }),
      );
    await send(job, node);
  }

  async function send(job: LiveJob, node: RosterNode): Promise<void> {
    // A node whose socket is about to be closed here counts as not connected: the frame may not reach it any more.
    const near = roster.get(node.nodeId)?.online ? context.links.node(node.nodeId) : undefined;
    if (!near) return sendFar(job, node);
    const payload = job.payload ?? (await readJob(hot, job.jobId, { payload: true }))?.payload;
    if (payload === undefined) return; // it ended meanwhile
    near.link.sendText(assignText(job, payload));
    job.payload = undefined;
    await failpoint("dispatch.after-sent");
  }

  /** From now on it is in the hands of the instance the node is connected to. */
  async function sendFar(job: LiveJob, node: RosterNode): Promise<void> {
    const { jobId, attemptId, ackTimeoutMs } = job;
    if (!node.instanceId || node.instanceId === instanceId) return story.retry(job, "node_lost");
    const sent = await context.ring(node.instanceId, {
      kind: "job.assign",
      job_id: jobId,
      attempt_id: attemptId,
      node_id: node.nodeId,
      deadline_ms: context.storeNowMs() + ackTimeoutMs,
    });
    await failpoint("dispatch.after-rung");
    if (sent.outcome === "full") return story.retry(job, "inbox_full");
    if (book.drop(job)) deadlines.clear(jobId);
    context.tracing.jobLeft(job);
  }

  /** Slots may have been freed on other instances, and nodes may have come, without a word to us. */
  async function lookAfterWaiting(): Promise<void> {
    forgetStrangers();
    const pools = waiting.pools().filter(hasRivals);
    const isAwaited = ({ pools: its }: RosterNode) => pools.some((pool) => its.has(pool));
    if (pools.length > 0) await countFull((node) => node.online && isFull(node) && isAwaited(node));
    for (const pool of pools) serve(pool);
  }

  const loop = every(LOOK_INTERVAL_MS, lookAfterWaiting, {
    clock,
    onError: (error) => {
      if (!isStoreDown(error))
        log.error({ event: "jobs.not-served", error }, "will look again in a moment");
    },
  });

  // Selection goes by these counts also while nothing waits.
  const counting = every(COUNT_INTERVAL_MS, () => countAll(({ online }) => online), {
    clock,
    onError: (error) => {
      if (!isStoreDown(error))
        log.error({ event: "slots.not-counted", error }, "could not count slots; will retry");
    },
  });

  return {
    place,
    askAhead,
    offer: (job, node) => void offer(job, node),
    onPatience(jobId) {
      const job = book.get(jobId);
      if (!job || !waiting.has(jobId)) return;
      waiting.release(jobId);
      serve(job.pool);
    },
    look: () => waiting.pools().forEach(serve),
    serve,
    freed(nodeId) {
      for (const pool of roster.poolsOf(nodeId)) {
        serve(pool);
        const node = roster.get(nodeId);
        if (node) elsewhere.leaveFree(node, pool);
      }
    },
    start() {
      loop.start();
      counting.start();
    },
    async stop() {
      await Promise.all([loop.stop(), counting.stop()]);
    },
  };
}

const isFull = ({ reserved, capacity }: RosterNode): boolean => reserved >= capacity;

const canTake = (node: RosterNode): boolean => node.online && !node.draining && !isFull(node);

/** The node with the services that it can serve now. */
const whatIsAvailable = ({ tenants, services, unavailable }: RosterNode) => ({
  tenants,
  services:
    unavailable.size === 0 ? services : [...services].filter((one) => !unavailable.has(one)),
});

/** `2 full, 1 draining`: what `NO_AVAILABLE_NODE` says besides. How many nodes other tenants have is not said. */
export function exclusionWords(context: Pick<JobsContext, "roster">, job: LiveJob): string {
  const { other_tenant: others, ...counts } = countExclusions(context.roster.all(), job);
  const words = Object.entries(counts).map(([reason, count]) => `${count} ${reason}`);
  if (words.length > 0) return words.join(", ");
  return others ? `no node serves the tenant ${job.tenant}` : "there is no node at all";
}
