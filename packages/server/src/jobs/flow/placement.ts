import { every, type Service } from "../../kernel/service.ts";
import type { Gathered } from "../../store/call.ts";
import type { TrackedJob } from "../job.ts";
import type { PoolNode } from "../memory/node-pool.ts";
import type { Openings } from "../memory/wait-queue.ts";
import type { JobsParts } from "../parts.ts";
import { offersOf } from "../policy/offers.ts";
import { persistJob } from "../store/job-store.ts";
import type { WantedSlot } from "../store/slot-store.ts";
import { takeAttempt } from "../store/transition-store.ts";
import { isStoreDown, logUnlessStoreDown } from "../store-errors.ts";
import type { Turns } from "../turns/turns.ts";
import { type Dispatching, dispatch, dispatchIf } from "./dispatch.ts";
import { ALONE_WAIT_MS, createNodeChoice, type NodeChoice } from "./node-choice.ts";
import type { SlotHandover } from "./slot-handover.ts";
import { createSlotCounts, type Slots } from "./slots.ts";
import type { Next, PendingSlot, StartedDispatch } from "./step.ts";

/** A job that is not tracked yet: it may be a duplicate. `createdMs` is later than that of all others. */
export type NewcomerJob = WantedSlot &
  Pick<TrackedJob, "tenant" | "pool" | "priority" | "createdMs">;

/** How often waiting jobs are offered free slots although no slot was reported free. */
const SERVE_INTERVAL_MS = 250;
/** How often slots are counted although nothing waits. */
const COUNT_INTERVAL_MS = 1_000;
/** How long a node is left out for a service when only the store reported it unavailable. */
const MARK_TRUST_MS = 5_000;
/** A larger payload is not kept in memory while its job waits. */
const KEPT_PAYLOAD_LENGTH_MAX = 8_192;

/** Brings jobs that are CREATED to nodes. */
export class Placement implements Service {
  readonly #parts: JobsParts;
  readonly #slots: Slots;
  readonly #turns: Turns;
  readonly #handover: SlotHandover;
  readonly #choice: NodeChoice;
  readonly #dispatching: Dispatching;
  readonly #countFull;
  readonly #loops: readonly Service[];

  constructor(
    parts: JobsParts,
    { slots, turns, handover }: { slots: Slots; turns: Turns; handover: SlotHandover },
    next: Next,
  ) {
    this.#parts = parts;
    this.#slots = slots;
    this.#turns = turns;
    this.#handover = handover;
    this.#choice = createNodeChoice(parts, { handover, turns });
    this.#dispatching = { parts, slots, turns, next };
    this.#countFull = createSlotCounts(parts);
    const { clock, log } = parts;
    const countAll = createSlotCounts(parts);
    this.#loops = [
      every(SERVE_INTERVAL_MS, () => this.#serveWaiting(), {
        clock,
        onError: logUnlessStoreDown(
          log,
          { event: "jobs.not-served" },
          "could not offer free slots to waiting jobs; will retry",
        ),
      }),
      // Selection goes by these counts also while nothing waits.
      every(COUNT_INTERVAL_MS, () => countAll(({ online }) => online), {
        clock,
        onError: logUnlessStoreDown(
          log,
          { event: "slots.not-counted" },
          "could not count slots; will retry",
        ),
      }),
    ];
  }

  start(): void {
    for (const loop of this.#loops) loop.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.stop()));
  }

  /**
   * Requests a slot while the record is still being written, so that the answers come together. `undefined`: no slot looks
   * free, or other jobs wait already. A caller that does not place the job then gives the slot back.
   */
  reserveAhead(job: NewcomerJob, written: Gathered): PendingSlot | undefined {
    if (this.#hasRivals(job.pool)) return undefined;
    const node = this.#choice.pick(job);
    if (!node) return undefined;
    const { nodeId } = node;
    this.#handover.used(job.pool);
    let dispatched: StartedDispatch | undefined;
    const answer = this.#slots.reserve(node, { ...job, onStarted: (slot) => written.add(slot) });
    written.whenComplete((all) => {
      const placed = { ...job, affinity: "no_turn" } as const;
      dispatched = dispatchIf(this.#parts, { all }, { job: placed, nodeId });
      dispatched.answer.catch(() => {}); // `dispatch` handles it
    });
    // Also when the outcome is unknown. The job may be DISPATCHED there: without a slot it is retried soon, and an attempt
    // that was not sent does not count.
    const free = async () => {
      const { jobId, attemptId } = job;
      if (dispatched?.takenBy !== undefined)
        await takeAttempt(this.#parts.hot, { jobId, attemptId }).catch(() => {});
      await this.#slots.free(nodeId, job);
    };
    const giveBack = () => void answer.then(free, free).catch(() => {});
    answer.catch(() => {}); // `place` handles it
    return {
      ...{ node, answer, giveBack },
      get dispatched() {
        return dispatched;
      },
    };
  }

  /** Finds a node for a tracked job, or lets it wait. Never rejects: failures are retried. */
  place(job: TrackedJob, reserved?: PendingSlot): void {
    if (reserved) return void this.#offer(job, reserved.node, reserved);
    // No job overtakes those that wait already; `serve` takes them in order.
    const node = this.#hasRivals(job.pool) ? undefined : this.#choice.choose(job).node;
    if (node) return void this.#offer(job, node);
    this.#wait(job);
    this.serve(job.pool);
  }

  placeOn(job: TrackedJob, node: PoolNode): void {
    void this.#offer(job, node);
  }

  /** Offers free slots of the pool to the jobs that wait here. Without a free slot it costs one pass over the nodes. */
  serve(pool: string): void {
    const { tracked, nodePool } = this.#parts;
    const openings = this.#hasRivals(pool) ? this.#openingsOf(nodePool.inPool(pool)) : undefined;
    if (!openings) return;
    tracked.waiting.serve(pool, openings, (job) => {
      const choice = this.#choice.choose(job);
      if (!choice.node) return choice.wait;
      void this.#offer(job, choice.node);
      return "taken";
    });
  }

  /** Offers free slots of the node to jobs that wait here, then to those of other instances. */
  serveNode(nodeId: string): void {
    const { nodePool } = this.#parts;
    for (const pool of nodePool.poolsOf(nodeId)) {
      this.serve(pool);
      const node = nodePool.get(nodeId);
      if (node) this.#handover.offerRest(node, pool);
    }
  }

  serveAll(): void {
    for (const pool of this.#parts.tracked.waiting.pools()) this.serve(pool);
  }

  /** Ends a job's wait for one particular node: it goes to any node now. */
  stopNodeWait(job: TrackedJob): void {
    const { waiting } = this.#parts.tracked;
    if (!waiting.has(job.jobId)) return;
    waiting.endNodeWait(job.jobId);
    this.serve(job.pool);
  }

  /**
   * Whether jobs wait that a node of the pool could take. Jobs of tenants that none of its nodes serves do not count:
   * however many wait, they cost the others nothing.
   */
  #hasRivals(pool: string): boolean {
    const { nodePool, tracked } = this.#parts;
    if (tracked.waiting.sizeOf(pool) === 0) return false;
    const offers = nodePool.offersIn(pool);
    for (const tenant of tracked.waiting.tenantsIn(pool)) if (offers.to(tenant)) return true;
    return false;
  }

  /** `undefined` when no node has a free slot. */
  #openingsOf(nodes: Iterable<PoolNode>): Openings | undefined {
    const free = [...nodes].filter(canTake);
    if (free.length === 0) return undefined;
    return { offers: offersOf(free.map(availableOn)), isOpen: (nodeId) => this.#isOpen(nodeId) };
  }

  /** Jobs do not wait for a node that has left or is draining either: the jobs of its turns go elsewhere. */
  #isOpen(nodeId: string): boolean {
    const node = this.#parts.nodePool.get(nodeId);
    return !node?.online || node.draining || canTake(node);
  }

  #wait(job: TrackedJob): void {
    const { hot, clock, tracked } = this.#parts;
    if (!tracked.has(job) || tracked.waiting.has(job.jobId)) return;
    if (job.payload && job.payload.length > KEPT_PAYLOAD_LENGTH_MAX) job.payload = undefined;
    tracked.wait(job);
    const waitedMs = clock.monotonicMs() - job.attemptSinceMs;
    const nodeWaitMs = this.#nodeWaitMs(job) - waitedMs;
    if (nodeWaitMs > 0) tracked.setDeadline(job, "node_wait", nodeWaitMs + 1);
    else tracked.waiting.endNodeWait(job.jobId);
    tracked.setDeadline(job, "state", job.pendingTimeoutMs - waitedMs);
    // The record would expire before a job that waits long is placed.
    persistJob(hot, job.jobId).catch(() => {});
  }

  /** How long the job waits for the node of its turn, or for a node without another suspect. */
  #nodeWaitMs({ turnId, isSuspect }: TrackedJob): number {
    if (turnId) return this.#parts.settings.affinityWaitMs;
    return isSuspect ? ALONE_WAIT_MS : 0;
  }

  /** One try with one node. If the slot is refused, the job is placed again. */
  async #offer(job: TrackedJob, node: PoolNode, pending?: PendingSlot): Promise<void> {
    const turns = this.#turns;
    try {
      turns.deciding(job);
      this.#handover.used(job.pool);
      const answer = await (pending?.answer ?? this.#slots.reserve(node, job));
      this.#handover.reserved(node.nodeId);
      let decided: "here" | "elsewhere" | "refused" = answer === "reserved" ? "here" : "refused";
      if (job.turnId) {
        if (decided === "here") decided = await turns.decideNode(job, node.nodeId);
        this.#unblockTurn(job);
      }
      if (decided === "here")
        return await dispatch(this.#dispatching, job, { node, begun: pending?.dispatched });
      // Another node is the turn's.
      if (decided === "elsewhere") this.#slots.free(node.nodeId, job).catch(() => {});
      if (answer === "unavailable" && job.service)
        this.#parts.nodePool.mark(node.nodeId, job.service, MARK_TRUST_MS);
      this.place(job);
    } catch (error) {
      this.#handover.reserved(node.nodeId);
      turns.decided(job);
      const { log, tracked } = this.#parts;
      if (!isStoreDown(error))
        log.error(
          { event: "job.not-placed", jobId: job.jobId, error },
          "could not place job; will retry",
        );
      // Not at once: while the store is down each try fails the same. The recovery worker knows the job too.
      if (tracked.has(job) && job.state === "CREATED") this.#wait(job);
    }
  }

  /** The turn's node is decided, or this try failed: the turn's other jobs need not wait for this one. */
  #unblockTurn(job: TrackedJob): void {
    this.#turns.decided(job);
    if (this.#parts.tracked.waiting.sizeOf(job.pool) > 0) setImmediate(() => this.serve(job.pool));
  }

  /** Other instances free slots, and nodes join, without a message to this instance. */
  async #serveWaiting(): Promise<void> {
    const { tracked } = this.#parts;
    this.#choice.forgetGone();
    const pools = tracked.waiting.pools().filter((pool) => this.#hasRivals(pool));
    const isAwaited = ({ pools: its }: PoolNode) => pools.some((pool) => its.has(pool));
    if (pools.length > 0)
      await this.#countFull((node) => node.online && isFull(node) && isAwaited(node));
    for (const pool of pools) this.serve(pool);
  }
}

const isFull = ({ reserved, capacity }: PoolNode): boolean => reserved >= capacity;

const canTake = (node: PoolNode): boolean => node.online && !node.draining && !isFull(node);

/** The node with the services that it can serve now. */
const availableOn = ({ tenants, services, unavailable }: PoolNode) => ({
  tenants,
  services:
    unavailable.size === 0 ? services : [...services].filter((one) => !unavailable.has(one)),
});
