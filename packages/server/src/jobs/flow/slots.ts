import { batchPerTick } from "../../kernel/batch.ts";
import type { JobsContext } from "../context.ts";
import type { RosterNode } from "../memory/node-pool.ts";
import {
  freeSlots,
  type JobAttempt,
  reserveSlots,
  type SlotAnswer,
  type WantedSlot,
} from "../store/slot-store.ts";

/** Slots of nodes, with everything asked for in one turn of the loop asked together. */
export interface Slots {
  reserve(node: RosterNode, job: WantedSlot): Promise<SlotAnswer>;
  /** Also one that is free already. Resolves when it is. */
  free(nodeId: string, attempt: JobAttempt): Promise<void>;
}

export function createSlots(
  { hot, roster, settings }: Pick<JobsContext, "hot" | "roster" | "settings">,
  onFreed: (nodeId: string) => void,
): Slots {
  const reserve = batchPerTick<WantedSlot, SlotAnswer>(async (nodeId, jobs) => {
    const node = roster.get(nodeId);
    const capacity = Math.max(0, (node?.capacity ?? 0) - (node?.stuck ?? 0));
    const wanted = jobs.map(({ jobId, attemptId, service }) => ({ jobId, attemptId, service }));
    const ttlMs = settings.slotTtlMs;
    const { answers, reserved } = await reserveSlots(hot, { nodeId, capacity, ttlMs, wanted });
    roster.counted(nodeId, reserved);
    return answers;
  });
  const free = batchPerTick<JobAttempt, void>(async (nodeId, slots) => {
    const { reserved } = await freeSlots(hot, nodeId, slots);
    roster.counted(nodeId, reserved);
    onFreed(nodeId);
    return [];
  });

  return {
    async reserve(node, job) {
      // Counted at once: the next job of this turn must see that the slot is spoken for.
      const answered = roster.asking(node.nodeId, 1);
      return reserve(node.nodeId, job).finally(answered);
    },
    free: (nodeId, { jobId, attemptId }) => free(nodeId, { jobId, attemptId }),
  };
}
