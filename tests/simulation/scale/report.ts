import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { COSTS } from "./costs.ts";
import type { FleetOptions } from "./fleet.ts";
import { measurePasses } from "./measure.ts";
import { renderProgress } from "./plot.ts";
import { converge, failOver, type Outcome, restOneMinute, type Told } from "./scenarios.ts";
import { messagesOf } from "./tally.ts";

export interface ScaleOptions {
  /** Node-units, one fleet each. */
  sizes: readonly number[];
  deploymentsPerNode: number;
  nodesPerInstance: number;
  seed: number;
  /** Of the scenarios those whose name has this in it. */
  only: string;
  /** Where to draw it. */
  svgFile: string | undefined;
  print: Told;
  told: Told;
}

/** The tables of docs/scale.md. */
export async function simulateScale(options: ScaleOptions): Promise<void> {
  const { sizes, seed, print, told, svgFile } = options;
  print(
    `seed ${seed}, ${options.deploymentsPerNode} deployments per node-unit; Node ${process.versions.node}, ` +
      `${cpus().length} × ${cpus()[0]?.model ?? "unknown"}`,
  );
  for (const line of headOf(COLUMNS)) print(line);
  const outcomes: Outcome[] = [];
  for (const nodes of sizes)
    for (const [name, run] of runsOf(fleetOf(nodes, options), told)) {
      if (!name.includes(options.only)) continue;
      const outcome = await run();
      outcomes.push(outcome);
      print(rowOf(COLUMNS, outcome));
    }
  print("");
  print("CPU of one pass of the agent, measured on this machine:");
  for (const line of await measurePasses(sizes.map((nodes) => fleetOf(nodes, options))))
    print(line);
  if (svgFile) writeFileSync(svgFile, renderProgress(outcomes));
}

function fleetOf(
  nodes: number,
  { deploymentsPerNode, nodesPerInstance, seed }: ScaleOptions,
): FleetOptions {
  const instances = Math.max(2, Math.ceil(nodes / nodesPerInstance));
  return { nodes, deployments: nodes * deploymentsPerNode, instances, seed, costs: COSTS };
}

function runsOf(fleet: FleetOptions, told: Told): [name: string, run: () => Promise<Outcome>][] {
  const losses = new Set([1, Math.round(fleet.nodes / 100), Math.round(fleet.nodes / 10)]);
  return [
    ["converge", () => converge(fleet, told)],
    ...[...losses]
      .filter((lost) => lost > 0)
      .map((lost): [string, () => Promise<Outcome>] => [
        `lose-${lost}`,
        () => failOver(fleet, lost, told),
      ]),
    ["rest", () => restOneMinute(fleet)],
  ];
}

type Column = [name: string, cell: (outcome: Outcome) => string];

const COLUMNS: Column[] = [
  [
    "node-units × deployments",
    ({ nodes, deployments }) => `${number(nodes)} × ${number(deployments)}`,
  ],
  ["instances", ({ instances }) => number(instances)],
  ["what", ({ what }) => what],
  ["took", ({ tookMs }) => (tookMs === undefined ? "not in an hour" : seconds(tookMs))],
  ["spread", ({ spread }) => number(spread)],
  ["claims", ({ tally }) => number(tally.claims)],
  ["conflicts", ({ tally }) => number(tally.conflicts)],
  ["calls late", ({ tally }) => number(tally.late)],
  ["messages", ({ tally }) => number(messagesOf(tally))],
  ["per node", ({ tally, nodes }) => number(messagesOf(tally) / nodes)],
  ["bytes per node", ({ tally, nodes }) => bytes(tally.bytes / nodes)],
  ["passes per node", ({ passes, nodes }) => number(passes / nodes)],
  ["CPU of an instance", ({ instanceBusyMs }) => seconds(instanceBusyMs)],
  ["longest wait there", ({ instanceWaitMsMax }) => seconds(instanceWaitMsMax)],
  ["Postgres busy", ({ postgresBusyMs }) => seconds(postgresBusyMs)],
];

const headOf = (columns: Column[]): string[] => [
  `| ${columns.map(([name]) => name).join(" | ")} |`,
  `|${columns.map(() => "---").join("|")}|`,
];

const rowOf = (columns: Column[], outcome: Outcome): string =>
  `| ${columns.map(([, cell]) => cell(outcome)).join(" | ")} |`;

const number = (value: number): string =>
  value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
const seconds = (ms: number): string =>
  ms < 1_000 ? `${Math.round(ms)} ms` : `${number(ms / 1_000)} s`;
const bytes = (count: number): string =>
  count < 1e6 ? `${number(count / 1e3)} kB` : `${number(count / 1e6)} MB`;
