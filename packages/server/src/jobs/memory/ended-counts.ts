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

interface Counts {
  all: number;
  byTenant: Map<string, number>;
}

/** The figures of another instance's sweep are up to `lateRounds` old. */
export function createEndedCounts({ lateRounds }: { lateRounds: number }): EndedCounts {
  let now = noCounts();
  /** Of a round that has begun, and of those before it that failed. */
  let begun = noCounts();
  let late: Counts[] = [];

  const sumOf = (count: (counts: Counts) => number): number =>
    [now, begun, ...late].reduce((sum, counts) => sum + count(counts), 0);

  return {
    add: (tenant) => add(now, tenant, 1),
    begin() {
      for (const [tenant, jobs] of now.byTenant) add(begun, tenant, jobs);
      now = noCounts();
    },
    end(isCounted) {
      late = isCounted ? [] : [begun, ...late].slice(0, lateRounds);
      begun = noCounts();
    },
    all: () => sumOf(({ all }) => all),
    of: (tenant) => sumOf(({ byTenant }) => byTenant.get(tenant) ?? 0),
  };
}

const noCounts = (): Counts => ({ all: 0, byTenant: new Map() });

function add(counts: Counts, tenant: string, jobs: number): void {
  counts.all += jobs;
  counts.byTenant.set(tenant, (counts.byTenant.get(tenant) ?? 0) + jobs);
}
