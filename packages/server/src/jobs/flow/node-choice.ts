import type { JobsContext } from "../context.ts";
import type { RosterNode } from "../memory/node-pool.ts";
import type { LiveJob } from "../memory/tracked-jobs.ts";
import type { Offered } from "../memory/wait-queue.ts";
import { chooseByTurn } from "../policy/affinity.ts";
import { pickNode, type Wanted } from "../policy/node-selection.ts";
import type { Turns } from "../turns/turns.ts";
import type { Ranked } from "./slot-handover.ts";

/** The node, or why the job has to wait: as `Offered` of the waiting room says it. */
export type Choice = { node: RosterNode } | { node?: undefined; wait: Exclude<Offered, "taken"> };

/** What the choice of a node depends on, besides turns and lost nodes. */
export type Picky = Wanted & Ranked;

/** Which node a job should be offered to now. */
export interface Choosing {
  choose(job: LiveJob): Choice;
  /** For a job that is in no turn and new: any node with a free slot. */
  pick(job: Picky): RosterNode | undefined;
  forgetStrangers(): void;
}

/** How long a suspect is believed to be on a node of another instance, or on its way to one. */
const SUSPECT_MS = 2_000;
/** What kills its node does so soon. Longer would make the innocent wait for nothing. */
export const ALONE_WAIT_MS = 500;

const NOT_NOW: Choice = { wait: "not_now" };
const NO_ROOM: Choice = { wait: "no_room" };

export function createChoosing(
  { roster, random, clock, book, settings, elsewhere }: JobsContext,
  turns: Pick<Turns, "nodeOf" | "isDeciding">,
): Choosing {
  const suspects = new Map<string, { job: LiveJob; atMs: number }>();

  function choose(job: LiveJob): Choice {
    if (!job.turnId) return chooseAnybody(job);
    const nodeId = turns.nodeOf(job.turnId);
    if (nodeId === undefined) {
      job.affinity = "first";
      // Another job of the turn is about to decide for all of them.
      return turns.isDeciding(job) ? NOT_NOW : chooseAnybody(job);
    }
    const waitedMs = clock.monotonicMs() - job.attemptSinceMs;
    const isPatient = waitedMs < settings.affinityWaitMs;
    const node = roster.get(nodeId);
    const choice = chooseByTurn(node, job, { isPatient });
    if (choice.go === "wait") return { wait: { nodeId } };
    if (choice.go === "there" && node) {
      // Another instance's job is first: look again whether a slot is left.
      if (elsewhere.yields(node, { pool: job.pool, job })) return choose(job);
      job.affinity = "hit";
      return { node };
    }
    if (choice.go === "anywhere") job.affinity = choice.outcome;
    return chooseAnybody(job);
  }

  function chooseAnybody(job: LiveJob): Choice {
    const nodes = roster.inPool(job.pool);
    if (job.isSuspect) {
      const node = chooseAlone(job, nodes);
      return node ? { node } : NOT_NOW;
    }
    const node = pick(nodes, job);
    return node ? { node } : NO_ROOM;
  }

  /** The best node, unless its slot belongs to a job that waits at another instance. */
  function pick(nodes: Iterable<RosterNode>, job: Picky): RosterNode | undefined {
    for (;;) {
      const node = pickNode(nodes, job, random);
      if (!node || !elsewhere.yields(node, { pool: job.pool, job })) return node;
    }
  }

  /**
   * One of the jobs that lost the same node may have been the cause. Each gets a node where no other of them is, as
   * long as there is one: else they would die together again, until the innocent have used up their attempts.
   */
  function chooseAlone(suspect: LiveJob, nodes: Iterable<RosterNode>): RosterNode | undefined {
    const alone = [...nodes].filter(({ nodeId }) => !hasOther(nodeId, suspect));
    const node = pick(alone, suspect);
    const waitedMs = clock.monotonicMs() - suspect.attemptSinceMs;
    const isPatient = waitedMs < Math.min(ALONE_WAIT_MS, suspect.pendingTimeoutMs / 2);
    const found = node ?? (isPatient ? undefined : pick(nodes, suspect));
    if (found) suspects.set(found.nodeId, { job: suspect, atMs: clock.monotonicMs() });
    return found;
  }

  function hasOther(nodeId: string, suspect: LiveJob): boolean {
    const other = suspects.get(nodeId);
    if (!other || other.job.jobId === suspect.jobId) return false;
    const isHere = book.get(other.job.jobId) === other.job && other.job.nodeId === nodeId;
    const isThere = isHere || clock.monotonicMs() - other.atMs < SUSPECT_MS;
    if (!isThere) suspects.delete(nodeId);
    return isThere;
  }

  return {
    choose,
    pick: (job) => pick(roster.inPool(job.pool), job),
    forgetStrangers() {
      for (const nodeId of suspects.keys()) if (!roster.get(nodeId)) suspects.delete(nodeId);
    },
  };
}
