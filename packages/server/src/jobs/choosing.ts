import { chooseByTurn } from "./affinity.ts";
import type { JobsContext } from "./context.ts";
import type { LiveJob } from "./live-job.ts";
import type { RosterNode } from "./roster.ts";
import { pickNode } from "./select-node.ts";
import type { Turns } from "./turns.ts";

/** Which node a job should be offered to now. */
export interface Choosing {
  /** `undefined`: it has to wait. */
  choose(job: LiveJob): RosterNode | undefined;
  forgetStrangers(): void;
}

/** How long a suspect is believed to be on a node of another instance, or on its way to one. */
const SUSPECT_MS = 2_000;
/** What kills its node does so soon. Longer would make the innocent wait for nothing. */
export const ALONE_WAIT_MS = 500;

export function createChoosing(
  { roster, random, clock, book, settings }: JobsContext,
  turns: Pick<Turns, "nodeOf" | "isDeciding">,
): Choosing {
  const suspects = new Map<string, { job: LiveJob; atMs: number }>();

  function choose(job: LiveJob): RosterNode | undefined {
    if (!job.turnId) return chooseAnybody(job);
    const nodeId = turns.nodeOf(job.turnId);
    if (nodeId === undefined) {
      job.affinity = "first";
      // Another job of the turn is about to decide for all of them.
      return turns.isDeciding(job) ? undefined : chooseAnybody(job);
    }
    const waitedMs = clock.monotonicMs() - job.attemptSinceMs;
    const isPatient = waitedMs < settings.affinityWaitMs;
    const choice = chooseByTurn(roster.get(nodeId), job, { isPatient });
    if (choice.go === "wait") return undefined;
    job.affinity = choice.go === "there" ? "hit" : choice.outcome;
    return choice.go === "there" ? roster.get(nodeId) : chooseAnybody(job);
  }

  function chooseAnybody(job: LiveJob): RosterNode | undefined {
    const nodes = roster.inPool(job.pool);
    return job.isSuspect ? chooseAlone(job, nodes) : pickNode(nodes, job, random);
  }

  /**
   * One of the jobs that lost the same node may have been the cause. Each gets a node where no other of them is, as
   * long as there is one: else they would die together again, until the innocent have used up their attempts.
   */
  function chooseAlone(suspect: LiveJob, nodes: Iterable<RosterNode>): RosterNode | undefined {
    const alone = [...nodes].filter(({ nodeId }) => !hasOther(nodeId, suspect));
    const node = pickNode(alone, suspect, random);
    const waitedMs = clock.monotonicMs() - suspect.attemptSinceMs;
    const isPatient = waitedMs < Math.min(ALONE_WAIT_MS, suspect.pendingTimeoutMs / 2);
    const found = node ?? (isPatient ? undefined : pickNode(nodes, suspect, random));
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
    forgetStrangers() {
      for (const nodeId of suspects.keys()) if (!roster.get(nodeId)) suspects.delete(nodeId);
    },
  };
}
