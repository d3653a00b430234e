import { renderColumns } from "../table.ts";
import type { ProcessorTime } from "./count-fleet.ts";
import type { LoadFigures } from "./drive.ts";
import { MODES } from "./fleets.ts";
import { type ByMode, type Compared, sumOf } from "./rates.ts";

/** How a rate is held against a peer's, and a sum of processor time. */
const RATE_TARGETS: Partial<Record<Compared, number>> = { redis: 1.5, memory: 3, roomy: 3 };
const COST_TARGETS: Partial<Record<Compared, { most: number; peer: Compared }>> = {
  redis: { most: 0.65, peer: "bullmq" },
  memory: { most: 1, peer: "jetstreamFile" },
  roomy: { most: 1, peer: "jetstreamFile" },
};

export const NOT_COMPARABLE = [
  "not comparable: BullMQ has no server between client and store, and one listener for all results. JetStream has no result,",
  "  session, deadline or retry on another node: the worker sends the result to a subject of the submitter, once, by core NATS;",
  "  if one of them is away at that moment it is lost. JetStream with files syncs every two minutes, Redis here once a second.",
];

export function renderThroughput(rates: ByMode<ProcessorTime>, atOnce: number): string {
  const all = Object.entries(rates) as [Compared, ProcessorTime][];
  const times = (own: number, peer: number) => `${(own / peer).toFixed(2)} ×`;
  const rows = all.map(([mode, rate]) => {
    const ratio = rate.perSecond / rates.bullmq.perSecond;
    const least = RATE_TARGETS[mode];
    return [
      MODES[mode],
      `${rate.perSecond.toFixed(0)}/s`,
      times(rate.perSecond, rates.bullmq.perSecond),
      times(rate.perSecond, rates.jetstreamFile.perSecond),
      least === undefined ? "" : `≥ ${least} × BullMQ ${verdict(ratio >= least)}`,
    ];
  });
  const costs = all.map(([mode, rate]) => {
    const target = COST_TARGETS[mode];
    const ratio = target && sumOf(rate) / sumOf(rates[target.peer]);
    return [
      MODES[mode],
      ...(["server", "submitter", "worker", "store"] as const).map((part) =>
        rate.us[part] === 0 ? "–" : rate.us[part].toFixed(0),
      ),
      sumOf(rate).toFixed(0),
      times(sumOf(rate), sumOf(rates.bullmq)),
      times(sumOf(rate), sumOf(rates.jetstreamFile)),
      target ? `≤ ${target.most} × ${MODES[target.peer]} ${verdict(ratio! <= target.most)}` : "",
    ];
  });
  const peers = ["BullMQ", "JetStream, file"];
  return [
    renderColumns([[`${atOnce} at once`, "jobs", ...peers, "target"], ...rows]),
    "",
    renderColumns(
      [
        ["µs of processor time per job", "server", "submitter", "worker", "store", "sum", ...peers],
        ...costs,
      ].map((row) => (row.length === 9 ? row : [...row, "target"])),
    ),
  ].join("\n");
}

const verdict = (isMet: boolean): string => (isMet ? "met" : "MISSED");

const SHOWN = ["bullmq", "jetstreamFile", "redis", "memory"] as const;

export function renderLatency({
  perSecond,
  figures,
}: {
  perSecond: number;
  figures: ByMode<LoadFigures>;
}): string {
  const rows = (["dispatch", "roundTrip"] as const).flatMap((what) =>
    (["p50Ms", "p99Ms"] as const).map((share) => {
      const of = (mode: Compared) => figures[mode][what][share];
      const against = (mode: Compared) => `${MODES[mode]} ${verdict(of(mode) <= of("bullmq"))}`;
      return [
        `${what === "dispatch" ? "dispatch" : "round trip"} ${share.slice(0, 3)}`,
        ...SHOWN.map((mode) => `${of(mode).toFixed(2)} ms`),
        what === "dispatch" ? `≤ BullMQ's: ${against("redis")}, ${against("memory")}` : "",
      ];
    }),
  );
  const headings = [`at ${perSecond}/s`, ...SHOWN.map((mode) => MODES[mode]), "target"];
  return `\n${renderColumns([headings, ...rows])}`;
}
