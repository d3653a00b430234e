import type { JobOutcome, Stats, StatsPoint } from "@tenure/protocol";
import { useMemo } from "preact/hooks";
import { duration } from "../model/time.ts";
import { type Line, Plot } from "../parts/plot.tsx";
import { Text } from "../parts/text.tsx";

const OUTCOMES: [JobOutcome, label: string, color: string][] = [
  ["succeeded", "succeeded", "--plot-good"],
  ["failed", "failed", "--plot-bad"],
  ["attempts_exhausted", "attempts exhausted", "--plot-6"],
  ["timed_out", "timed out", "--plot-warn"],
  ["no_node", "no node", "--plot-5"],
  ["cancelled", "cancelled", "--plot-idle"],
];

/** The last 15 minutes, as measured by this instance. */
export function OverviewPlots({ stats, hasOthers }: { stats: Stats; hasOthers: boolean }) {
  const { points, interval_ms } = stats;
  const times = useMemo(() => points.map(({ at }) => Date.parse(at) / 1_000), [points]);
  const jobs = useMemo(() => jobLines(points, interval_ms), [points]);
  const latency = useMemo(() => latencyLines(points), [points]);
  const slots = useMemo(() => slotLines(points), [points]);
  const moves = useMemo(() => moveLines(points), [points]);
  return (
    <>
      <div class="plots">
        <Plot
          title="Jobs per second"
          times={times}
          lines={jobs}
          stacked
          format={figure}
          empty="No job ended on this instance in the last minutes"
        />
        <Plot
          title="Dispatch latency"
          times={times}
          lines={latency}
          format={duration}
          empty="No job was dispatched by this instance in the last minutes"
        />
        <Plot
          title="Slots"
          times={times}
          lines={slots}
          format={figure}
          empty="No node offers slots for jobs"
        />
        <Plot
          title="Claims and takeovers"
          times={times}
          lines={moves}
          format={figure}
          empty="No ownership changed in the last minutes"
        />
      </div>
      <p class="note">
        The last 15 minutes in steps of {interval_ms / 1_000} s
        {hasOthers && (
          <>
            , as instance{" "}
            <code>
              <Text>{stats.instance_id}</Text>
            </code>{" "}
            saw them
          </>
        )}
        .
      </p>
    </>
  );
}

function jobLines(points: StatsPoint[], intervalMs: number): Line[] {
  // Outcomes without jobs are left out of the legend, except the first.
  const seen = OUTCOMES.filter(
    ([outcome], index) => index < 2 || points.some(({ ended }) => ended[outcome]),
  );
  return seen.map(([outcome, label, color]) => ({
    label,
    color,
    values: points.map(({ ended }) => perSecond(ended[outcome] ?? 0, intervalMs)),
  }));
}

const latencyLines = (points: StatsPoint[]): Line[] => [
  {
    label: "p50",
    color: "--plot-1",
    values: points.map(({ dispatch_ms }) => dispatch_ms?.p50 ?? null),
  },
  {
    label: "p99",
    color: "--plot-2",
    values: points.map(({ dispatch_ms }) => dispatch_ms?.p99 ?? null),
  },
];

const slotLines = (points: StatsPoint[]): Line[] => [
  { label: "used", color: "--plot-1", values: points.map(({ slots }) => slots.reserved) },
  { label: "offered", color: "--plot-idle", values: points.map(({ slots }) => slots.capacity) },
];

const moveLines = (points: StatsPoint[]): Line[] => [
  { label: "claimed", color: "--plot-1", values: points.map(({ claimed }) => claimed) },
  { label: "released", color: "--plot-warn", values: points.map(({ released }) => released) },
  {
    label: "leases taken over",
    color: "--plot-2",
    values: points.map((point) => point.leases_taken_over),
  },
];

export const perSecond = (count: number, intervalMs: number): number =>
  Math.round((10_000 * count) / intervalMs) / 10;

function figure(value: number): string {
  if (value >= 10_000) return `${Math.round(value / 1_000)}k`;
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}
