import type { TrackedJob } from "../job.ts";
import type { PoolNode } from "../memory/node-pool.ts";
import type { Ranked } from "../memory/peer-queues.ts";
import type { Offered } from "../memory/wait-queue.ts";
import type { JobsParts } from "../parts.ts";
import { chooseByTurn, pickNode, type Wanted } from "../policy/node-selection.ts";
import type { Turns } from "../turns/turns.ts";
import type { SlotHandover } from "./slot-handover.ts";

/** The node, or why the job has to wait, in the terms of the wait queue. */
export type Choice = { node: PoolNode } | { node?: undefined; wait: Exclude<Offered, "taken"> };

/** Decides which node a job is offered to now. */
export interface NodeChoice {
  choose(job: TrackedJob): Choice;
  /** For a new job without a turn: any node with a free slot. */
  pick(job: Wanted & Ranked): PoolNode | undefined;
  /** Drops what is known about nodes that have left the pool. */
  forgetGone(): void;
}

/** How long a suspect is assumed to be on a node of another instance, or on its way to one. */
const SUSPECT_MS = 2_000;
/** A job that kills its node does so soon. A longer wait would delay the other suspects for nothing. */
export const ALONE_WAIT_MS = 500;

const NOT_NOW: Choice = { wait: "not_now" };
const NO_ROOM: Choice = { wait: "no_room" };

export function createNodeChoice(
  {
    nodePool,
    random,
    clock,
    tracked,
    settings,
  }: Pick<JobsParts, "nodePool" | "random" | "clock" | "tracked" | "settings">,
  { handover, turns }: { handover: SlotHandover; turns: Pick<Turns, "nodeOf" | "isDeciding"> },
): NodeChoice {
  const suspects = new Map<string, { job: TrackedJob; atMs: number }>();

  function choose(job: TrackedJob): Choice {
    if (!job.turnId) return chooseAny(job);
    const nodeId = turns.nodeOf(job.turnId);
    if (nodeId === undefined) {
      job.affinity = "first";
      // Another job of the turn is being placed, and its node will be the node of all of them.
      return turns.isDeciding(job) ? NOT_NOW : chooseAny(job);
    }
    const waitedMs = clock.monotonicMs() - job.attemptSinceMs;
    const isPatient = waitedMs < settings.affinityWaitMs;
    const node = nodePool.get(nodeId);
    const choice = chooseByTurn(node, job, { isPatient });
    if (choice.go === "wait") return { wait: { nodeId } };
    if (choice.go === "there" && node) {
      // The slot went to a job of another instance. Choose again: another slot may be free.
      if (handover.yields(node, { pool: job.pool, job })) return choose(job);
      job.affinity = "hit";
      return { node };
    }
    if (choice.go === "anywhere") job.affinity = choice.outcome;
    return chooseAny(job);
  }

  function chooseAny(job: TrackedJob): Choice {
    const nodes = nodePool.inPool(job.pool);
    if (job.isSuspect) {
      const node = chooseAlone(job, nodes);
      return node ? { node } : NOT_NOW;
    }
    const node = pick(nodes, job);
    return node ? { node } : NO_ROOM;
  }

  /** The best node, unless its slot goes to a job that waits at another instance. */
  function pick(nodes: Iterable<PoolNode>, job: Wanted & Ranked): PoolNode | undefined {
    for (;;) {
      const node = pickNode(nodes, job, random);
      if (!node || !handover.yields(node, { pool: job.pool, job })) return node;
    }
  }

  /**
   * One of the jobs that lost the same node may have been the cause. Each gets a node without another suspect as long as
   * there is one: together they would lose node after node, until the innocent ones have used up their attempts.
   */
  function chooseAlone(suspect: TrackedJob, nodes: Iterable<PoolNode>): PoolNode | undefined {
    const alone = [...nodes].filter(({ nodeId }) => !hasOther(nodeId, suspect));
    const node = pick(alone, suspect);
    const waitedMs = clock.monotonicMs() - suspect.attemptSinceMs;
    const isPatient = waitedMs < Math.min(ALONE_WAIT_MS, suspect.pendingTimeoutMs / 2);
    const found = node ?? (isPatient ? undefined : pick(nodes, suspect));
    if (found) suspects.set(found.nodeId, { job: suspect, atMs: clock.monotonicMs() });
    return found;
  }

  function hasOther(nodeId: string, suspect: TrackedJob): boolean {
    const other = suspects.get(nodeId);
    if (!other || other.job.jobId === suspect.jobId) return false;
    const isHere = tracked.has(other.job) && other.job.nodeId === nodeId;
    const isThere = isHere || clock.monotonicMs() - other.atMs < SUSPECT_MS;
    if (!isThere) suspects.delete(nodeId);
    return isThere;
  }

  return {
    choose,
    pick: (job) => pick(nodePool.inPool(job.pool), job),
    forgetGone() {
      for (const nodeId of suspects.keys()) if (!nodePool.get(nodeId)) suspects.delete(nodeId);
    },
  };
}
