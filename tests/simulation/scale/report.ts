import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { COSTS } from "./costs.ts";
import type { FleetOptions } from "./fleet.ts";
import { measureLists, measurePasses } from "./measure.ts";
import { renderProgress } from "./plot.ts";
import { converge, failOver, type Outcome, restOneMinute, type Told } from "./scenarios.ts";
import { messagesOf } from "./tally.ts";

export interface ScaleOptions {
  /** Node-units, one fleet each. */
  sizes: readonly number[];
  deploymentsPerNode: number;
  nodesPerInstance: number;
  seed: number;
  /** The server as it is built. */
  serverDist: string;
  /** Of the scenarios those whose name has this in it. */
  only: string;
  /** Where to draw it. */
  svgFile: string | undefined;
  /** Rows that are in it are not run again, and those that are run are added: the largest take a quarter of an hour. */
  keepFile: string | undefined;
  print: Told;
  told: Told;
}

/** The tables of docs/scale.md. */
export async function simulateScale(options: ScaleOptions): Promise<void> {
  const { sizes, seed, print, told, svgFile } = options;
  const kept = createKept(options.keepFile);
  print(
    `seed ${seed}, ${options.deploymentsPerNode} deployments per node-unit; Node ${process.versions.node}, ` +
      `${cpus().length} × ${cpus()[0]?.model ?? "unknown"}`,
  );
  const outcomes: Outcome[] = [];
  for (const nodes of sizes)
    for (const [name, run] of runsOf(fleetOf(nodes, options), told)) {
      if (!name.includes(options.only)) continue;
      told(`${nodes} node-units: ${name}`);
      const key = JSON.stringify([seed, fleetOf(nodes, options), name]);
      const outcome = kept.get(key) ?? (await run());
      kept.set(key, outcome);
      outcomes.push(outcome);
    }
  for (const line of tablesOf(outcomes)) print(line);
  print("");
  print(await measureLists(options.serverDist));
  print("CPU of one pass of the agent, measured on this machine:");
  for (const line of await measurePasses(sizes.map((nodes) => fleetOf(nodes, options))))
    print(line);
  if (svgFile) writeFileSync(svgFile, renderProgress(outcomes));
}

function createKept(file: string | undefined) {
  const lines = file && existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : [];
  const kept = new Map<string, Outcome>(lines.map((line) => JSON.parse(line)));
  return {
    get: (key: string) => kept.get(key),
    set(key: string, outcome: Outcome) {
      if (file && !kept.has(key)) appendFileSync(file, `${JSON.stringify([key, outcome])}\n`);
    },
  };
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

const RUN: Column[] = [
  [
    "node-units × deployments",
    ({ nodes, deployments }) => `${number(nodes)} × ${number(deployments)}`,
  ],
  ["what", ({ what }) => what],
];

const FLEET: Column[] = [
  ...RUN,
  ["took", ({ tookMs }) => (tookMs === undefined ? "not in an hour" : seconds(tookMs))],
  ["spread", ({ spread }) => number(spread)],
  ["claims", ({ tally }) => number(tally.claims)],
  ["conflicts", ({ tally }) => number(tally.conflicts)],
  ["messages", ({ tally }) => number(messagesOf(tally))],
  ["messages per node", ({ tally, nodes }) => number(messagesOf(tally) / nodes)],
  ["bytes per node", ({ tally, nodes }) => bytes(tally.bytes / nodes)],
  ["passes per node", ({ passes, nodes }) => number(passes / nodes)],
];

const SERVERS: Column[] = [
  ...RUN,
  ["instances", ({ instances }) => number(instances)],
  ["CPU of the busiest", ({ instanceBusyMs }) => seconds(instanceBusyMs)],
  ["longest wait for it", ({ instanceWaitMsMax }) => seconds(instanceWaitMsMax)],
  ["calls late", ({ tally }) => number(tally.late)],
  ["lists", ({ tally }) => number(tally.lists)],
  ["cut", ({ tally }) => number(tally.cut)],
  ["rows sent", ({ tally }) => number(tally.listRows)],
  ["free rows sent", ({ tally }) => number(tally.listFree)],
  ["counts sent", ({ tally }) => number(tally.listOwners)],
  ["releases asked", ({ tally }) => number(tally.releases)],
  ["Postgres busy", ({ postgresBusyMs }) => seconds(postgresBusyMs)],
];

/** What the fleet needed, then what it cost the servers. */
export function tablesOf(outcomes: readonly Outcome[]): string[] {
  return [...tableOf(FLEET, outcomes), "", ...tableOf(SERVERS, outcomes)];
}

function tableOf(columns: Column[], outcomes: readonly Outcome[]): string[] {
  return [
    `| ${columns.map(([name]) => name).join(" | ")} |`,
    `|${columns.map(() => "---").join("|")}|`,
    ...outcomes.map((outcome) => `| ${columns.map(([, cell]) => cell(outcome)).join(" | ")} |`),
  ];
}

const number = (value: number): string =>
  value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
const seconds = (ms: number): string =>
  ms < 1_000 ? `${Math.round(ms)} ms` : `${number(ms / 1_000)} s`;
const bytes = (count: number): string =>
  count < 1e6 ? `${number(count / 1e3)} kB` : `${number(count / 1e6)} MB`;
