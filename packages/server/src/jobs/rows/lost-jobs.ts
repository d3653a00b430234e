import { uuid7 } from "../../kernel/random.ts";
import { every, type Service } from "../../kernel/service.ts";
import type { TrackedJob } from "../job.ts";
import type { JobsParts } from "../parts.ts";
import { countMarks, isBehind, type Mark } from "../store/mark-store.ts";
import { logUnlessStoreDown } from "../store-errors.ts";
import type { DurableJobs } from "./durable-jobs.ts";

/** Finds durable jobs that the hot store has lost, and has them written again. */
export interface LostJobs extends Service {
  /** This instance found the record of a durable job missing. */
  refill(job: TrackedJob): Promise<void>;
}

const MARK_INTERVAL_MS = 1_000;
/** How often all open rows are compared: a store that failed over may have lost the last writes, and no mark shows it. */
const SWEEP_INTERVAL_MS = 60_000;
const PAGE = 1_000;

/**
 * Each instance counts some keys of the hot store up, every second. They show when the store was emptied, or brought back an
 * earlier state: then all open rows are compared with it at once. They are also compared when an instance starts, and every
 * minute.
 */
export function createLostJobs(
  { hot, rows, clock, log, random }: Pick<JobsParts, "hot" | "rows" | "clock" | "log" | "random">,
  { durable, onStoreLost }: { durable: Pick<DurableJobs, "compare">; onStoreLost: () => void },
): LostJobs {
  let marks: readonly Mark[] = [];
  /** When the last complete sweep began; the first begins at once. */
  let sweptMs = Number.NEGATIVE_INFINITY;
  let isLost = true;

  async function check(signal: AbortSignal): Promise<void> {
    const now = await countMarks(hot, uuid7(random, clock.wallMs()));
    if (isBehind(marks, now)) {
      log.warn({ event: "store.lost" }, "the hot store lost its state; writing durable jobs again");
      isLost = true;
      onStoreLost();
    }
    marks = now;
    if (!isLost && clock.monotonicMs() - sweptMs < SWEEP_INTERVAL_MS) return;
    const isAfterLoss = isLost;
    isLost = false;
    sweptMs = clock.monotonicMs();
    try {
      await sweep(signal, isAfterLoss);
    } catch (error) {
      isLost ||= isAfterLoss;
      sweptMs = Number.NEGATIVE_INFINITY;
      throw error;
    }
  }

  async function sweep(signal: AbortSignal, isAfterLoss: boolean): Promise<void> {
    let refilled = 0;
    let afterId: string | undefined;
    while (!signal.aborted) {
      const page = await rows.open({ afterId, limit: PAGE });
      // The submit of a young row may be about to write its record. After a loss that does not matter.
      const open = isAfterLoss ? page : page.filter(({ isYoung }) => !isYoung);
      if (open.length > 0) refilled += await durable.compare(open);
      if (page.length < PAGE) break;
      afterId = page.at(-1)!.jobId;
    }
    if (refilled > 0)
      log.warn(
        { event: "jobs.refilled", refilled },
        "wrote jobs again that the hot store had lost",
      );
  }

  const loop = every(MARK_INTERVAL_MS, check, {
    clock,
    onError: logUnlessStoreDown(
      log,
      { event: "jobs.not-compared" },
      "could not compare durable jobs with the hot store; will retry",
    ),
  });

  return {
    ...loop,
    async refill({ jobId, attemptId }) {
      try {
        await durable.compare([{ jobId, attemptId }]);
      } catch (error) {
        // The sweep finds it.
        logUnlessStoreDown(
          log,
          { event: "job.not-refilled", jobId },
          "could not write a lost job again",
        )(error);
      }
    },
  };
}
