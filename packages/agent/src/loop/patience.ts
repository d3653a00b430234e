import type { ListedDeployment } from "@tenure/protocol";

export interface Patience {
  /** The rows that wait for somebody now. Those seen before keep their time. */
  seen(rows: readonly ListedDeployment[], nowMs: number): void;
  waitedIntervals(row: ListedDeployment, nowMs: number): number;
}

/** How long this node has seen a row without an owner, in its present term: a new term begins anew. */
export function createPatience(intervalMs: number): Patience {
  let waiting = new Map<string, number>();
  const keyOf = ({ id, generation }: ListedDeployment) => `${id}:${generation}`;

  return {
    seen(rows, nowMs) {
      waiting = new Map(rows.map((row) => [keyOf(row), waiting.get(keyOf(row)) ?? nowMs]));
    },
    waitedIntervals(row, nowMs) {
      const sinceMs = waiting.get(keyOf(row));
      return sinceMs === undefined ? 0 : Math.floor((nowMs - sinceMs) / intervalMs);
    },
  };
}
