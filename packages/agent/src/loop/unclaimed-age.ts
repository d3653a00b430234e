import type { ListedDeployment } from "@tenure/protocol";

export interface Patience {
  /** The rows that wait for somebody now. Those seen before keep their time. */
  seen(rows: readonly ListedDeployment[], nowMs: number): void;
  waitedIntervals(row: ListedDeployment, nowMs: number): number;
}

/** How long this node has seen a row without an owner, in its present term: a new term begins anew. */
export function createPatience(intervalMs: number): Patience {
  let waiting = new Map<string, { generation: number; sinceMs: number }>();

  return {
    seen(rows, nowMs) {
      const now: typeof waiting = new Map();
      for (const { id, generation } of rows) {
        const former = waiting.get(id);
        const isSame = former?.generation === generation;
        now.set(id, isSame ? former : { generation, sinceMs: nowMs });
      }
      waiting = now;
    },
    waitedIntervals({ id, generation }, nowMs) {
      const seen = waiting.get(id);
      if (seen?.generation !== generation) return 0;
      return Math.floor((nowMs - seen.sinceMs) / intervalMs);
    },
  };
}
