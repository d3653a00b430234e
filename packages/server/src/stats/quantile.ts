/** How many values were at most `le`, counted from the smallest bucket on, as Prometheus does. */
export interface Bucket {
  le: number;
  count: number;
}

/** The values that came between two readings of one histogram. */
export function between(before: readonly Bucket[], after: readonly Bucket[]): Bucket[] {
  const former = new Map(before.map(({ le, count }) => [le, count]));
  return after.map(({ le, count }) => ({ le, count: count - (former.get(le) ?? 0) }));
}

/**
 * A guess as good as the buckets are: the values of one are taken as spread evenly over it. `undefined` for no
 * values. Above the last bound that bound is the answer, because nothing more is known.
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
