import type { Counter, Gauge, Histogram } from "prom-client";
import type { Bucket } from "./quantile.ts";

/** The values of a metric, summed by one of its labels. */
export async function readSums<L extends string>(
  metric: Counter<L> | Gauge<L>,
  label: L,
): Promise<Record<string, number>> {
  const sums: Record<string, number> = {};
  for (const { labels, value } of (await metric.get()).values) {
    const key = String(labels[label] ?? "");
    sums[key] = (sums[key] ?? 0) + value;
  }
  return sums;
}

/** The value of a metric without labels. */
export async function readValue(metric: Counter<never> | Gauge<never>): Promise<number> {
  return (await metric.get()).values[0]?.value ?? 0;
}

/** The buckets of a histogram, smallest first. */
export async function readBuckets(metric: Histogram<never>): Promise<Bucket[]> {
  const counts = new Map<number, number>();
  for (const { labels, value, metricName } of (await metric.get()).values) {
    if (!metricName?.endsWith("_bucket")) continue;
    const { le } = labels as { le: number | "+Inf" };
    counts.set(le === "+Inf" ? Number.POSITIVE_INFINITY : le, value);
  }
  return [...counts].map(([le, count]) => ({ le, count })).sort((a, b) => a.le - b.le);
}
