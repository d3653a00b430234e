/** Jobs that this instance has ended and that the figures of the sweep may not contain yet, in all and by tenant. */
export interface EndedCounts {
  add(tenant: string): void;
  /** A round begins: jobs that end from now on are for the next one. */
  begin(): void;
  /** The round is done. `isCounted`: by this instance, so its figures contain all that had ended when the round began. */
  end(isCounted: boolean): void;
  all(): number;
  of(tenant: string): number;
}

type Counts = Map<string, number>;

/** The figures of another instance's sweep are up to `lateRounds` old. */
export function createEndedCounts({ lateRounds }: { lateRounds: number }): EndedCounts {
  let now: Counts = new Map();
  /** Of a round that has begun, and of those before it that failed. */
  let begun: Counts = new Map();
  let late: Counts[] = [];

  const sumOf = (count: (counts: Counts) => number): number =>
    [now, begun, ...late].reduce((sum, counts) => sum + count(counts), 0);

  return {
    add: (tenant) => add(now, tenant, 1),
    begin() {
      for (const [tenant, jobs] of now) add(begun, tenant, jobs);
      now = new Map();
    },
    end(isCounted) {
      late = isCounted ? [] : [begun, ...late].slice(0, lateRounds);
      begun = new Map();
    },
    all: () =>
      sumOf((counts) => {
        let sum = 0;
        for (const jobs of counts.values()) sum += jobs;
        return sum;
      }),
    of: (tenant) => sumOf((counts) => counts.get(tenant) ?? 0),
  };
}

function add(counts: Counts, tenant: string, jobs: number): void {
  counts.set(tenant, (counts.get(tenant) ?? 0) + jobs);
}
