import { renderColumns } from "../table.ts";
import { sum, type Traffic } from "./count-fleet.ts";
import { type Counts, framesOf } from "./counts.ts";
import { isPeer, MODES, type Mode, usesRedis } from "./fleets.ts";

interface Figure {
  what: string;
  of: (counts: Counts) => number | undefined;
  digits: number;
  target?: { most: number; modes: readonly Mode[] };
}

const ALL: readonly Mode[] = ["memory", "redis", "two", "across"];
const REDIS: readonly Mode[] = ["redis"];

function figures(atOnce: number): Figure[] {
  return [
    ...([1, atOnce] as const).flatMap((n): Figure[] => {
      const traffic = ({ single, many }: Counts) => (n === 1 ? single : many);
      const figure = (what: string, of: (traffic: Traffic) => number, target = {}): Figure => ({
        what: `${what}, ${n} at once`,
        of: (counts) => {
          const seen = traffic(counts);
          return seen && of(seen);
        },
        digits: 2,
        ...target,
      });
      return [
        figure("frames in", ({ framesIn }) => sum(Object.values(framesIn))),
        figure("frames out", ({ framesOut }) => sum(Object.values(framesOut))),
        figure("frames", framesOf, { target: { most: 5, modes: ALL } }),
        figure("writes to sessions and nodes", ({ clientWrites }) => clientWrites),
        figure("writes to Redis", ({ redisWrites }) => redisWrites),
        figure("Redis commands", ({ commands }) => sum(Object.values(commands)), {
          target: { most: 20, modes: REDIS },
        }),
      ];
    }),
    {
      what: "round trips until the worker has it",
      of: ({ roundTrips }) => roundTrips?.dispatch,
      digits: 1,
      target: { most: 1, modes: REDIS },
    },
    {
      what: "round trips until the session has the result",
      of: ({ roundTrips }) => roundTrips?.result,
      digits: 1,
      target: { most: 5, modes: ["across"] },
    },
    {
      what: "kB allocated by the servers",
      of: ({ allocatedBytes }) => allocatedBytes && allocatedBytes / 1_000,
      digits: 1,
      target: { most: 10, modes: ["memory", "redis"] },
    },
    ...(["server", "submitter", "worker", "store"] as const).map(
      (part): Figure => ({
        what: `µs of processor time: ${part}`,
        of: ({ processorUs }) => processorUs[part],
        digits: 0,
      }),
    ),
    {
      what: "µs of processor time: all",
      of: ({ processorUs }) => sum(Object.values(processorUs)),
      digits: 0,
    },
  ];
}

export function renderCounts(
  counted: readonly (readonly [Mode, Counts])[],
  atOnce: number,
): string {
  const rows = figures(atOnce).map(({ what, of, digits, target }) => {
    const values = counted.map(([mode, counts]) => ({ mode, value: of(counts) }));
    const shown = values.map(({ mode, value }) =>
      value === undefined || isMeaningless(what, mode) ? "–" : value.toFixed(digits),
    );
    return [what, ...shown, target ? verdict(values, digits, target) : ""];
  });
  const headings = ["per job", ...counted.map(([mode]) => MODES[mode]), "target"];
  return renderColumns([headings, ...rows]);
}

/** Nothing was counted there: a peer without a server, a mode without Redis. */
function isMeaningless(what: string, mode: Mode): boolean {
  if (isPeer(mode) && /^frames|^writes/.test(what)) return true;
  if (what.endsWith("server")) return mode === "bullmq";
  return !usesRedis(mode) && /Redis|store$/.test(what);
}

function verdict(
  values: readonly { mode: Mode; value: number | undefined }[],
  digits: number,
  { most, modes }: NonNullable<Figure["target"]>,
): string {
  const held = values.filter(({ mode, value }) => modes.includes(mode) && value !== undefined);
  const over = held.filter(({ value }) => Number(value?.toFixed(digits)) > most);
  const where = over.map(({ mode }) => MODES[mode]).join(", ");
  if (held.length === 0) return "";
  const of = modes === ALL ? "" : ` for ${modes.map((mode) => MODES[mode]).join(", ")}`;
  return `≤ ${most}${of} ${over.length === 0 ? "met" : `MISSED (${where})`}`;
}

/** Which frames and commands there are, the most frequent first. */
export function renderNames(mode: string, single: Traffic, many: Traffic | undefined): string {
  const line = (what: string, counts: Record<string, number>) => {
    const named = Object.entries(counts)
      .filter(([, count]) => count >= 0.005)
      .toSorted(([, a], [, b]) => b - a)
      .map(([name, count]) => `${name} ${count.toFixed(2)}`);
    return `  ${what}: ${named.join(", ") || "none"}`;
  };
  const both = (what: string, of: (traffic: Traffic) => Record<string, number>) => [
    line(`${what}, 1 at once`, of(single)),
    ...(many ? [line(`${what}, many at once`, of(many))] : []),
  ];
  return [
    mode,
    ...both("frames in", ({ framesIn }) => framesIn),
    ...both("frames out", ({ framesOut }) => framesOut),
    ...both("Redis commands", ({ commands }) => commands),
  ].join("\n");
}
