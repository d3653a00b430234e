import { every, type Service } from "../../kernel/service.ts";
import type { TrackedJob } from "../job.ts";
import type { JobsParts } from "../parts.ts";
import { countMarks, isBehind, type Mark } from "../store/mark-store.ts";
import { logUnlessStoreDown } from "../store-errors.ts";
import type { DurableJobs } from "./durable-jobs.ts";
import type { OpenRow } from "./row-store.ts";

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
    const now = await countMarks(hot, randomId());
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

  /** From a random row on, so that several instances that sweep at once begin with different ones. */
  async function sweep(signal: AbortSignal, isAfterLoss: boolean): Promise<void> {
    const from = randomId();
    let refilled = 0;
    const compare = async (open: readonly OpenRow[]) => {
      // The submit of a young row may be about to write its record. After a loss that does not matter.
      const old = isAfterLoss ? open : open.filter(({ isYoung }) => !isYoung);
      refilled += await durable.compare(old);
    };
    await eachPage(from, undefined, signal, compare);
    await eachPage(undefined, from, signal, compare);
    if (refilled > 0)
      log.warn(
        { event: "jobs.refilled", refilled },
        "wrote jobs again that the hot store had lost",
      );
  }

  async function eachPage(
    after: string | undefined,
    until: string | undefined,
    signal: AbortSignal,
    compare: (open: readonly OpenRow[]) => Promise<void>,
  ): Promise<void> {
    let afterId = after;
    while (!signal.aborted) {
      const page = await rows.open({ afterId, limit: PAGE });
      const open = until === undefined ? page : page.filter(({ jobId }) => jobId <= until);
      if (open.length > 0) await compare(open);
      if (open.length < PAGE) return;
      afterId = open.at(-1)!.jobId;
    }
  }

  const randomId = (): string => {
    const hex = Array.from(random.bytes(16), (byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  };

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
