import type { ListedDeployment } from "@tenure/protocol";

/**
 * Measures how long this node has seen each row without an owner.
 *
 * Invariants: holds exactly the rows of the last `observe`; a row with a new generation starts at zero.
 */
export interface UnclaimedAge {
  /** Replaces the rows without an owner. Rows observed before keep their time. */
  observe(rows: readonly ListedDeployment[], nowMs: number): void;
  intervals(row: ListedDeployment, nowMs: number): number;
}

export function createUnclaimedAge(intervalMs: number): UnclaimedAge {
  let unclaimed = new Map<string, { generation: number; sinceMs: number }>();

  return {
    observe(rows, nowMs) {
      const now: typeof unclaimed = new Map();
      for (const { id, generation } of rows) {
        const former = unclaimed.get(id);
        const isSame = former?.generation === generation;
        now.set(id, isSame ? former : { generation, sinceMs: nowMs });
      }
      unclaimed = now;
    },
    intervals({ id, generation }, nowMs) {
      const entry = unclaimed.get(id);
      if (entry?.generation !== generation) return 0;
      return Math.floor((nowMs - entry.sinceMs) / intervalMs);
    },
  };
}
