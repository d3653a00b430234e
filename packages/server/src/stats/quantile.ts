/** The number of values up to `le`, cumulative as in Prometheus. */
export interface Bucket {
  le: number;
  count: number;
}

/** The values observed between two readings of one histogram. */
export function between(before: readonly Bucket[], after: readonly Bucket[]): Bucket[] {
  const former = new Map(before.map(({ le, count }) => [le, count]));
  return after.map(({ le, count }) => ({ le, count: count - (former.get(le) ?? 0) }));
}

/**
 * Estimates a quantile, assuming that the values of a bucket are spread evenly over it. `undefined` without values. Above
 * the last bound the estimate is that bound.
 */
export function quantile(buckets: readonly Bucket[], share: number): number | undefined {
  const total = buckets.at(-1)?.count ?? 0;
  if (total === 0) return undefined;
  const rank = share * total;
  const index = buckets.findIndex(({ count }) => count >= rank);
  const { le, count } = buckets[index]!;
  const below = buckets[index - 1] ?? { le: 0, count: 0 };
  if (le === Number.POSITIVE_INFINITY) return below.le;
  if (count === below.count) return le;
  return below.le + ((rank - below.count) / (count - below.count)) * (le - below.le);
}
