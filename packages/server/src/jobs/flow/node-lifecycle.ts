import { failpoint } from "#failpoint";
import { every, type Service } from "../../kernel/service.ts";
import { instanceOf } from "../../membership/owner-lookup.ts";
import type { JobAttempt } from "../job.ts";
import type { NodeConnection } from "../memory/connections.ts";
import type { JobsParts } from "../parts.ts";
import { type AttemptNow, readAttempts } from "../store/job-store.ts";
import { fillSlots, freeSlots, listSlots, renewSlots } from "../store/slot-store.ts";
import { forgiveAttempt } from "../store/transition-store.ts";
import { logUnlessStoreDown } from "../store-errors.ts";
import type { Adoption } from "./adoption.ts";
import { sendAssign } from "./node-messages.ts";
import type { Next } from "./step.ts";

export interface NodeLeft {
  /** The node is gone, and not only connected to another instance. */
  isLeave: boolean;
  /** The connection broke without a close frame: the process may reconnect in a moment, and still runs its jobs. */
  abruptly: boolean;
}

export interface Heartbeat {
  running: readonly JobAttempt[];
  capacity: number;
  draining: boolean;
}

export interface RegisteringNode {
  nodeId: string;
  capacity: number;
  running: readonly JobAttempt[];
}

const RECONCILE_INTERVAL_MS = 10_000;
/** How long the jobs of a node whose connection broke are left to it, in case it reconnects to any instance. */
const RECONNECT_MS = 1_000;

type Parts = Pick<
  JobsParts,
  | "hot"
  | "instanceId"
  | "settings"
  | "connections"
  | "tracked"
  | "nodePool"
  | "clock"
  | "log"
  | "metrics"
>;

/** What the join, the heartbeats and the end of a node's connection mean for its jobs and slots. */
export class NodeLifecycle implements Service {
  readonly #parts: Parts;
  readonly #adoption: Adoption;
  readonly #next: Next;
  readonly #loop: Service;
  /** Attempts that a node named although they were over, in its last heartbeat or when it registered. */
  readonly #overBefore = new WeakMap<NodeConnection, ReadonlySet<string>>();
  /** By node: the newest connection that broke, while its jobs are left to the node. */
  readonly #broken = new Map<string, NodeConnection>();
  readonly #leaving = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  /** Slots of ended jobs found by the last reconciliation. Found twice, a slot has leaked. */
  #maybeLeaked = new Set<string>();

  constructor(parts: Parts, adoption: Adoption, next: Next) {
    this.#parts = parts;
    this.#adoption = adoption;
    this.#next = next;
    this.#loop = every(RECONCILE_INTERVAL_MS, () => this.#reconcile(), {
      clock: parts.clock,
      onError: logUnlessStoreDown(
        parts.log,
        { event: "slots.not-reconciled" },
        "could not compare slots with jobs; will retry",
      ),
    });
  }

  start(): void {
    this.#loop.start();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.allSettled([this.#loop.stop(), ...this.#leaving]);
  }

  /** Gives the attempts that the node runs their slots, before the node can be chosen by any instance. */
  async registering({ nodeId, capacity, running }: RegisteringNode): Promise<void> {
    const { hot, settings } = this.#parts;
    if (running.length === 0) return;
    // Compared before: a slot, even for a moment, would let the node end a job that it only names.
    const over = await this.#outdated(nodeId, running);
    const wanted = running.filter((attempt) => !over.includes(attempt));
    if (wanted.length > 0) {
      await fillSlots(hot, { nodeId, capacity, ttlMs: settings.slotTtlMs, wanted });
      // And after: a job that ends meanwhile is FINISHED before its slot is removed.
      over.push(...(await this.#outdated(nodeId, wanted)));
    }
    if (over.length > 0) await freeSlots(hot, nodeId, over);
  }

  async joined(node: NodeConnection, running: readonly JobAttempt[]): Promise<void> {
    const { hot, connections } = this.#parts;
    const { nodeId } = node;
    connections.addNode(node);
    const slots = await listSlots(hot, nodeId);
    const over = await this.#outdated(nodeId, running);
    for (const attempt of over) sendCancel(node, attempt);
    await this.#forgive(nodeId, over);
    this.#overBefore.set(node, new Set(over.map(nameOf)));
    const known = new Set(running.map(nameOf));
    await Promise.all(slots.map((slot) => this.#resume(node, slot, known.has(nameOf(slot)))));
    void this.#next({ do: "serve_node", nodeId });
  }

  left(node: NodeConnection, how: NodeLeft): Promise<void> {
    const done = this.#leave(node, how).finally(() => this.#leaving.delete(done));
    this.#leaving.add(done);
    return done;
  }

  /** Returns how many slots the node uses for attempts that are over: it was sent a cancel and still runs them. */
  async heartbeat(
    node: NodeConnection,
    { running, capacity, draining }: Heartbeat,
  ): Promise<number> {
    const { hot, settings, nodePool } = this.#parts;
    const { nodeId } = node;
    nodePool.leaving(nodeId, draining);
    const answers = await renewSlots(hot, { nodeId, ttlMs: settings.slotTtlMs, slots: running });
    const absent = running.filter((_, at) => answers[at] === "absent");
    const now = absent.length === 0 ? [] : await readAttempts(hot, absent);
    const over = absent.filter((attempt, at) => !isCurrent(nodeId, attempt, now[at]));
    // The acknowledgement of its result is in a list that has not left yet, or is on its way.
    const knows = (attempt: JobAttempt) =>
      node.link.acks !== undefined && isResultOf(nodeId, attempt, now[absent.indexOf(attempt)]);
    const before = this.#overBefore.get(node);
    // Named once, the attempt may have ended while the heartbeat was on its way; named again, it still runs.
    const isStuck = (attempt: JobAttempt) => before?.has(nameOf(attempt)) ?? false;
    this.#overBefore.set(node, new Set(over.map(nameOf)));
    for (const attempt of over)
      if (!this.#isTracked(nodeId, attempt) && !knows(attempt)) sendCancel(node, attempt);
    await this.#forgive(
      nodeId,
      over.filter((attempt) => !isStuck(attempt)),
    );
    // Current, but without a slot: it expired while the store was down.
    const bare = absent.filter((attempt) => !over.includes(attempt));
    if (bare.length > 0) await this.registering({ nodeId, capacity, running: bare });
    return over.filter(isStuck).length;
  }

  /** The attempts among these that are over or on another node. */
  async #outdated<Slot extends JobAttempt>(
    nodeId: string,
    slots: readonly Slot[],
  ): Promise<Slot[]> {
    const now = await readAttempts(this.#parts.hot, slots);
    return slots.filter((slot, at) => !isCurrent(nodeId, slot, now[at]));
  }

  /** Tracks the job of a slot that the node has, and continues it. `isKnown`: the node runs it. */
  async #resume(node: NodeConnection, slot: JobAttempt, isKnown: boolean): Promise<void> {
    // A job with a slot that was not dispatched is tracked by another instance, or recovered.
    const at = { attemptId: slot.attemptId, nodeId: node.nodeId };
    const job = await this.#adoption.adopt(slot.jobId, at, node);
    if (!job || isKnown) return;
    // Dispatched, and unknown to the node: the message was lost with the instance that sent it. If another process under
    // this address may have taken it, that process was lost with it.
    const isSame = job.takenBy === undefined || job.takenBy === node.link.takesAs;
    if (job.state === "DISPATCHED" && isSame) {
      await sendAssign(this.#parts, node, job);
      return;
    }
    const detail = "the node came back without it";
    await this.#next({ do: "retry", job, reason: "node_lost", detail });
  }

  /**
   * The node still runs these attempts, so its connection was lost and not the node: an attempt that was ended for that does
   * not count. The script changes only attempts that were.
   */
  async #forgive(nodeId: string, attempts: readonly JobAttempt[]): Promise<void> {
    const { hot, tracked } = this.#parts;
    await Promise.all(
      attempts.map(async ({ jobId, attemptId }) => {
        const countedAttempts = await forgiveAttempt(hot, { jobId, attemptId, nodeId });
        const job = tracked.get(jobId);
        if (job && countedAttempts !== undefined) job.countedAttempts = countedAttempts;
      }),
    );
  }

  async #leave(node: NodeConnection, { isLeave, abruptly }: NodeLeft): Promise<void> {
    const { hot, connections, nodePool, tracked } = this.#parts;
    const { nodeId, epoch } = node;
    if (!connections.removeNode(node)) return; // a newer connection replaced it
    const reason = nodePool.get(nodeId)?.draining ? "node_draining" : "node_lost";
    // Also when the node is expected at another instance: its snapshot stays in the store until it is back, and without a
    // socket here nothing can be sent to it.
    nodePool.left(nodeId, epoch);
    if (!isLeave) return this.#releaseAll(nodeId);
    await failpoint("node.after-leave");
    if (abruptly && (await this.#isBack(node))) return;
    const own = [...tracked.values()].filter((job) => job.nodeId === nodeId);
    const held = await listSlots(hot, nodeId).catch(() => []);
    const others = held.filter(({ jobId }) => !own.some((job) => job.jobId === jobId));
    const loaded = await Promise.all(others.map(({ jobId }) => this.#adoption.load(jobId)));
    const lost = [...own, ...loaded].filter((job) => job?.nodeId === nodeId);
    await Promise.all(lost.map((job) => job && this.#next({ do: "retry", job, reason })));
  }

  /** Waits in case the node reconnects. A stop of this instance ends the wait. */
  async #isBack(node: NodeConnection): Promise<boolean> {
    const { hot, instanceId, connections, clock } = this.#parts;
    const { nodeId } = node;
    this.#broken.set(nodeId, node);
    await clock.sleep(RECONNECT_MS, this.#stopping.signal);
    // It reconnected, and that connection broke too: its own wait decides.
    if (this.#broken.get(nodeId) !== node) return true;
    this.#broken.delete(nodeId);
    if (connections.node(nodeId)) return true;
    const owner = await instanceOf(hot, { node_id: nodeId }, instanceId);
    if (owner === undefined) return false;
    if (owner !== instanceId) this.#releaseAll(nodeId); // else it is about to be connected here
    return true;
  }

  /** Another instance has the node, and tracks its jobs. */
  #releaseAll(nodeId: string): void {
    const { tracked } = this.#parts;
    for (const job of [...tracked.values()]) if (job.nodeId === nodeId) tracked.release(job);
  }

  /** The job ended here a moment ago: the node knows, or gets the message next. */
  #isTracked(nodeId: string, { jobId, attemptId }: JobAttempt): boolean {
    const job = this.#parts.tracked.get(jobId);
    return job?.attemptId === attemptId && job.nodeId === nodeId;
  }

  /** Frees slots of ended jobs that were found twice in a row. There should be none. */
  async #reconcile(): Promise<void> {
    const { hot, connections, log, metrics } = this.#parts;
    const seen = new Set<string>();
    let leaked = 0;
    for (const { nodeId } of connections.nodes()) {
      const over = await this.#outdated(nodeId, await listSlots(hot, nodeId));
      const leaks = over.filter((slot) => this.#maybeLeaked.has(`${nodeId} ${nameOf(slot)}`));
      for (const slot of over) seen.add(`${nodeId} ${nameOf(slot)}`);
      if (leaks.length === 0) continue;
      leaked += leaks.length;
      await freeSlots(hot, nodeId, leaks);
      log.warn({ event: "slots.leaked", nodeId, leaks }, "freed slots of ended jobs");
    }
    this.#maybeLeaked = seen;
    metrics.slotsLeaked(leaked);
  }
}

const nameOf = ({ jobId, attemptId }: JobAttempt): string => `${jobId}:${attemptId}`;

const isCurrent = (nodeId: string, slot: JobAttempt, now: AttemptNow | undefined): boolean =>
  now !== undefined &&
  now.attemptId === slot.attemptId &&
  now.nodeId === nodeId &&
  now.state !== "FINISHED" &&
  now.state !== "RELEASED";

const isResultOf = (nodeId: string, { attemptId }: JobAttempt, now?: AttemptNow): boolean =>
  now?.hasResult === true && now.attemptId === attemptId && now.nodeId === nodeId;

function sendCancel({ link }: NodeConnection, { jobId, attemptId }: JobAttempt): void {
  const reason = "this attempt is over";
  link.send({ type: "job_cancel", job_id: jobId, attempt_id: attemptId, reason });
}
