import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { COSTS } from "./costs.ts";
import { measurePasses } from "./measure.ts";
import { renderProgress } from "./plot.ts";
import { converge, failOver, type Outcome } from "./scenarios.ts";

export interface ScaleOptions {
  nodes: number;
  deployments: number;
  instances: number;
  seed: number;
  /** Where to draw how the fleet converges. */
  svgFile: string | undefined;
  print: (line: string) => void;
  told: (line: string) => void;
}

/** The table of docs/scale.md for one size of fleet. */
export async function simulateScale(options: ScaleOptions): Promise<void> {
  const { nodes, deployments, instances, seed, print, told } = options;
  const size = { nodes, deployments, instances, seed, costs: COSTS };
  print(
    `${number(nodes)} node-units, ${number(deployments)} deployments, ${instances} instances, seed ${seed}; ` +
      `Node ${process.versions.node}, ${cpus().length} × ${cpus()[0]?.model ?? "unknown"}`,
  );
  print("");
  const outcomes = [
    await failOver(size, 1, told),
    await failOver(size, Math.max(1, Math.round(nodes / 10)), told),
    await converge(size, told),
  ];
  for (const line of tableOf(outcomes)) print(line);
  print("");
  for (const line of await measurePasses({ nodes, deployments })) print(line);
  if (options.svgFile) writeFileSync(options.svgFile, renderProgress(outcomes));
}

const COLUMNS: [string, (outcome: Outcome) => string][] = [
  ["what", ({ what }) => what],
  ["took", ({ tookMs }) => (tookMs === undefined ? "not in an hour" : seconds(tookMs))],
  ["spread", ({ spread }) => String(spread)],
  ["claims", ({ tally }) => number(tally.claims)],
  ["conflicts", ({ tally }) => number(tally.conflicts)],
  ["list calls", ({ tally }) => number(tally.lists)],
  ["of them late", ({ tally }) => number(tally.timeouts)],
  ["most in a second", ({ listsPerSecondMax }) => number(listsPerSecondMax)],
  ["messages per node", (outcome) => number(messagesOf(outcome) / outcome.size.nodes)],
  ["bytes per node", ({ tally, size }) => bytes((tally.bytesDown + tally.bytesUp) / size.nodes)],
  ["CPU of an instance", ({ instanceBusyMs }) => seconds(instanceBusyMs)],
  ["longest wait there", ({ instanceWaitMsMax }) => seconds(instanceWaitMsMax)],
  ["Postgres", ({ postgresBusyMs }) => seconds(postgresBusyMs)],
];

function tableOf(outcomes: Outcome[]): string[] {
  return [
    `| ${COLUMNS.map(([name]) => name).join(" | ")} |`,
    `|${COLUMNS.map(() => "---").join("|")}|`,
    ...outcomes.map((outcome) => `| ${COLUMNS.map(([, cell]) => cell(outcome)).join(" | ")} |`),
  ];
}

/** Questions and answers, events and wake-ups. */
function messagesOf({ tally }: Outcome): number {
  const calls = tally.lists + tally.claims + tally.conflicts + tally.releases;
  return 2 * calls + tally.tells + tally.hostEvents;
}

export const number = (value: number): string =>
  value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
export const seconds = (ms: number): string =>
  ms < 1_000 ? `${Math.round(ms)} ms` : `${number(ms / 1_000)} s`;
const bytes = (count: number): string =>
  count < 1e6 ? `${number(count / 1e3)} kB` : `${number(count / 1e6)} MB`;
