import type { Registry } from "prom-client";
import type { Bucket } from "./quantile.ts";

/** The values of a metric, added up by one of its labels; under "" without a label. */
export async function readSums(
  registry: Registry,
  metric: string,
  label?: string,
): Promise<Record<string, number>> {
  const sums: Record<string, number> = {};
  for (const { labels, value } of await valuesOf(registry, metric)) {
    const key = label === undefined ? "" : String(labels[label] ?? "");
    sums[key] = (sums[key] ?? 0) + value;
  }
  return sums;
}

/** The buckets of a histogram, over all its labels, smallest first. */
export async function readBuckets(registry: Registry, metric: string): Promise<Bucket[]> {
  const counts = new Map<number, number>();
  for (const { labels, value, metricName } of await valuesOf(registry, metric)) {
    if (metricName !== `${metric}_bucket`) continue;
    const le = labels.le === "+Inf" ? Number.POSITIVE_INFINITY : Number(labels.le);
    counts.set(le, (counts.get(le) ?? 0) + value);
  }
  return [...counts].map(([le, count]) => ({ le, count })).sort((a, b) => a.le - b.le);
}

interface Value {
  labels: Partial<Record<string, string | number>>;
  value: number;
  metricName?: string;
}

/** None for a metric that does not exist. */
async function valuesOf(registry: Registry, metric: string): Promise<Value[]> {
  return (await registry.getSingleMetric(metric)?.get())?.values ?? [];
}
