import { failpoint } from "#failpoint";
import { every, type Service } from "../../kernel/service.ts";
import { instanceOf } from "../../membership/owner-lookup.ts";
import { assignText } from "../api/frames.ts";
import { isStoreDown, type JobsContext } from "../context.ts";
import type { NodeEnd } from "../memory/connections.ts";
import type { LiveJob, Place } from "../memory/tracked-jobs.ts";
import { type AttemptNow, readAttempts, readJob } from "../store/job-store.ts";
import {
  fillSlots,
  freeSlots,
  type JobAttempt,
  listSlots,
  renewSlots,
} from "../store/slot-store.ts";
import { forgiveAttempt } from "../store/transition-store.ts";
import type { Endings } from "./attempt-outcomes.ts";
import type { Placement } from "./placement.ts";

/** Nodes as they come, beat and go, and what that means for their jobs and slots. */
export interface NodeDesk extends Service {
  /** Before it is a candidate anywhere: what it says it runs has its slot. */
  registering(node: {
    nodeId: string;
    capacity: number;
    running: readonly JobAttempt[];
  }): Promise<void>;
  joined(node: NodeEnd, running: readonly JobAttempt[]): Promise<void>;
  left(node: NodeEnd, how: NodeLeft): Promise<void>;
  /** Answers how many slots the node uses for attempts that are over: it was sent a cancel and still runs them. */
  heartbeat(node: NodeEnd, beat: Heartbeat): Promise<number>;
}

export interface NodeLeft {
  /** It is gone, and not only connected elsewhere. */
  isLeave: boolean;
  /** The connection broke without a close frame: the same process may be back in a moment, and still runs its jobs. */
  abruptly: boolean;
}

export interface Heartbeat {
  running: readonly JobAttempt[];
  capacity: number;
  draining: boolean;
}

export interface NodeDeskStory {
  endings: Endings;
  placement: Placement;
  /** The job's record as a job in hand, with its deadline set; one in hand already as it is. */
  takeUp(jobId: string, at: Place, node: NodeEnd): Promise<LiveJob | undefined>;
  load(jobId: string): Promise<LiveJob | undefined>;
}

const RECONCILE_INTERVAL_MS = 10_000;
/** How long the jobs of a node whose connection broke are left to it, in case it comes back to any instance. */
const RECONNECT_MS = 1_000;

export function createNodeDesk(context: JobsContext, story: NodeDeskStory): NodeDesk {
  const { hot, settings, links, book, deadlines, roster, clock, log } = context;
  const ttlMs = settings.slotTtlMs;

  const isCurrent = (nodeId: string, slot: JobAttempt, now: AttemptNow | undefined): boolean =>
    now !== undefined &&
    now.attemptId === slot.attemptId &&
    now.nodeId === nodeId &&
    now.state !== "FINISHED" &&
    now.state !== "RELEASED";

  /** Of these, which are over or elsewhere. */
  async function outdated<Slot extends JobAttempt>(nodeId: string, slots: readonly Slot[]) {
    const now = await readAttempts(hot, slots);
    return slots.filter((slot, at) => !isCurrent(nodeId, slot, now[at]));
  }

  async function registering({
    nodeId,
    capacity,
    running,
  }: Parameters<NodeDesk["registering"]>[0]) {
    if (running.length === 0) return;
    // Filled first, then compared: a job that ends meanwhile is FINISHED before its slot is removed.
    await fillSlots(hot, { nodeId, capacity, ttlMs, wanted: running });
    const over = await outdated(nodeId, running);
    if (over.length > 0) await freeSlots(hot, nodeId, over);
  }

  async function joined(node: NodeEnd, running: readonly JobAttempt[]): Promise<void> {
    const { nodeId } = node;
    links.addNode(node);
    const slots = await listSlots(hot, nodeId);
    const over = await outdated(nodeId, running);
    for (const attempt of over) sendCancel(node, attempt, "this attempt is over");
    await forgive(nodeId, over);
    overBefore.set(node, new Set(over.map(nameOf)));
    const known = new Set(running.map(nameOf));
    await Promise.all(slots.map((slot) => resume(node, slot, known.has(nameOf(slot)))));
    story.placement.freed(nodeId);
  }

  /** A slot the node holds: its job is in our hands now, and goes on where it was. */
  async function resume(node: NodeEnd, slot: JobAttempt, isKnown: boolean): Promise<void> {
    // One that has a slot and was not dispatched is somebody else's, who is about to, or the index's.
    const job = await story.takeUp(slot.jobId, { ...slot, nodeId: node.nodeId }, node);
    if (!job || isKnown) return;
    // Dispatched, and never heard of there: the message was lost with the instance that sent it.
    if (job.state === "DISPATCHED") return assign(node, job);
    await story.endings.retry(job, "node_lost", "the node came back without it");
  }

  async function assign(node: NodeEnd, job: LiveJob): Promise<void> {
    const payload = job.payload ?? (await readJob(hot, job.jobId, { payload: true }))?.payload;
    if (payload !== undefined) node.link.sendText(assignText(job, payload));
  }

  /**
   * The node still ran these, so its connection was lost and not the node: an attempt that was ended for that does not
   * count. The script answers only for attempts that were.
   */
  async function forgive(nodeId: string, attempts: readonly JobAttempt[]): Promise<void> {
    await Promise.all(
      attempts.map(async ({ jobId, attemptId }) => {
        const countedAttempts = await forgiveAttempt(hot, { jobId, attemptId, nodeId });
        const job = book.get(jobId);
        if (job && countedAttempts !== undefined) job.countedAttempts = countedAttempts;
      }),
    );
  }

  /** The newest connection of a node that broke, while its jobs are left to it. */
  const broken = new Map<string, NodeEnd>();
  const leaving = new Set<Promise<void>>();
  const stopping = new AbortController();

  function left(node: NodeEnd, how: NodeLeft): Promise<void> {
    const done = leave(node, how).finally(() => leaving.delete(done));
    leaving.add(done);
    return done;
  }

  /** Waits in case the node comes back. At a stop of this instance it is not waited for any longer. */
  async function isBack(node: NodeEnd): Promise<boolean> {
    const { nodeId } = node;
    broken.set(nodeId, node);
    await clock.sleep(RECONNECT_MS, stopping.signal);
    if (broken.get(nodeId) !== node) return true; // it was, and that connection broke too: its own wait decides
    broken.delete(nodeId);
    if (links.node(nodeId)) return true;
    const owner = await instanceOf(hot, { node_id: nodeId }, context.instanceId);
    if (owner === undefined) return false;
    if (owner !== context.instanceId) drop(nodeId); // else it is about to be connected here
    return true;
  }

  /** Another instance has the node, and with it its jobs. */
  function drop(nodeId: string): void {
    for (const job of [...book.values()])
      if (job.nodeId === nodeId && book.drop(job)) deadlines.clear(job.jobId);
  }

  async function leave(node: NodeEnd, { isLeave, abruptly }: NodeLeft): Promise<void> {
    const { nodeId, epoch } = node;
    if (!links.removeNode(node)) return; // a newer connection has its place
    const reason = roster.get(nodeId)?.draining ? "node_draining" : "node_lost";
    // Also when the node is expected elsewhere: its snapshot stays in the store until it is back, and without a socket
    // here nothing can be sent to it.
    roster.left(nodeId, epoch);
    if (!isLeave) return drop(nodeId);
    await failpoint("node.after-leave");
    if (abruptly && (await isBack(node))) return;
    const own = [...book.values()].filter((job) => job.nodeId === nodeId);
    const held = await listSlots(hot, nodeId).catch(() => []);
    const others = held.filter(({ jobId }) => !own.some((job) => job.jobId === jobId));
    const loaded = await Promise.all(others.map(({ jobId }) => story.load(jobId)));
    const lost = [...own, ...loaded].filter((job) => job?.nodeId === nodeId);
    await Promise.all(lost.map((job) => job && story.endings.retry(job, reason)));
  }

  /** Attempts that a node still named when they were over, in its last heartbeat or when it registered. */
  const overBefore = new WeakMap<NodeEnd, ReadonlySet<string>>();

  async function heartbeat(
    node: NodeEnd,
    { running, capacity, draining }: Heartbeat,
  ): Promise<number> {
    const { nodeId } = node;
    roster.leaving(nodeId, draining);
    const answers = await renewSlots(hot, { nodeId, ttlMs, slots: running });
    const absent = running.filter((_, at) => answers[at] === "absent");
    const over = absent.length === 0 ? [] : await outdated(nodeId, absent);
    const before = overBefore.get(node);
    // Named once it may have ended while the heartbeat was on its way; named again it still runs.
    const isStuck = (attempt: JobAttempt) => before?.has(nameOf(attempt)) ?? false;
    overBefore.set(node, new Set(over.map(nameOf)));
    for (const attempt of over)
      if (!isInHand(nodeId, attempt)) sendCancel(node, attempt, "this attempt is over");
    await forgive(
      nodeId,
      over.filter((attempt) => !isStuck(attempt)),
    );
    // Current, but without a slot: it ran out while the store was away. Filled, then compared, as at a register.
    const bare = absent.filter((attempt) => !over.includes(attempt));
    if (bare.length > 0) await registering({ nodeId, capacity, running: bare });
    return over.filter(isStuck).length;
  }

  /** It ended a moment ago, here: the node knows by now, or will with the next message. */
  function isInHand(nodeId: string, { jobId, attemptId }: JobAttempt): boolean {
    const job = book.get(jobId);
    return job?.attemptId === attemptId && job.nodeId === nodeId;
  }

  function sendCancel(node: NodeEnd, { jobId, attemptId }: JobAttempt, reason: string): void {
    node.link.send({ type: "job_cancel", job_id: jobId, attempt_id: attemptId, reason });
  }

  /** Slots whose job is over, seen twice in a row: somebody forgot to free them. There must be none. */
  let suspects = new Set<string>();
  async function reconcile(): Promise<void> {
    const seen = new Set<string>();
    let leaked = 0;
    for (const { nodeId } of links.nodes()) {
      const over = await outdated(nodeId, await listSlots(hot, nodeId));
      const leaks = over.filter((slot) => suspects.has(`${nodeId} ${nameOf(slot)}`));
      for (const slot of over) seen.add(`${nodeId} ${nameOf(slot)}`);
      if (leaks.length === 0) continue;
      leaked += leaks.length;
      await freeSlots(hot, nodeId, leaks);
      log.warn({ event: "slots.leaked", nodeId, leaks }, "slots of ended jobs were still in use");
    }
    suspects = seen;
    context.meter.slotsLeaked(leaked);
  }

  const loop = every(RECONCILE_INTERVAL_MS, reconcile, {
    clock,
    onError: (error) => {
      if (!isStoreDown(error))
        log.error({ event: "slots.not-reconciled", error }, "will be looked at again");
    },
  });

  return {
    registering,
    joined,
    left,
    heartbeat,
    start: () => loop.start(),
    async stop() {
      stopping.abort();
      await Promise.allSettled([loop.stop(), ...leaving]);
    },
  };
}

const nameOf = ({ jobId, attemptId }: JobAttempt): string => `${jobId}:${attemptId}`;
