import { fileURLToPath } from "node:url";
import type { DeploymentView, NodeView } from "@tenure/protocol";
import pc from "picocolors";
import { type Cell, table } from "../output.ts";
import type { JobsSeen } from "./jobs.ts";
import type { DemoUnit } from "./units.ts";

export interface DemoScene {
  url: string;
  views: readonly DeploymentView[];
  nodes: readonly NodeView[];
  units: readonly DemoUnit[];
  jobs: Readonly<JobsSeen> | undefined;
}

/** Shows what runs where, and commands to try. */
export function drawDemo(scene: DemoScene): string {
  const { units, url } = scene;
  const victim = units[0];
  const unitLines = units.map(({ name, pid }) => `  ${name} has pid ${pid}`);
  return [
    "",
    `${pc.green("●")} ${pc.bold("Two node-units are running these deployments")}`,
    "",
    indented(drawDeployments(scene)),
    "",
    ...unitLines,
    "  A sample session sends two jobs per second to the echo workers.",
    "",
    "  Kill one node-unit: its deployments and their jobs move to the other one.",
    `    ${pc.cyan(`kill -9 ${victim?.pid}`)}`,
    `    npx tenure events -f${flag(url)}`,
    `    npx tenure deployment ls${flag(url)}`,
    `    npx tenure job watch${flag(url)}`,
    "",
  ].join("\n");
}

/** Shown after a node-unit exits while the demo runs. */
export function drawLoss(scene: DemoScene & { unit: DemoUnit; end: string }): string {
  const { unit, end, url, jobs } = scene;
  return [
    "",
    `${pc.yellow("●")} ${pc.bold(`${unit.name} is gone`)} (${end}); its deployments run on the other node-unit`,
    "",
    indented(drawDeployments(scene)),
    "",
    ...(jobs ? [`  ${drawJobs(jobs)}`, ""] : []),
    `  Start ${unit.name} again in another terminal:`,
    `    ENABLE_CUSTOM_COMMAND=true npx tenure node run --name ${unit.name} --url ${url} --data-dir ${unit.directory}`,
    "",
  ].join("\n");
}

function drawJobs({ sent, answered, failed, again, slowestMs }: JobsSeen): string {
  const slowest = `the slowest took ${(slowestMs / 1_000).toFixed(1)} s`;
  return `jobs: ${sent} sent, ${answered} succeeded (${again} after a retry), ${failed} failed; ${slowest}`;
}

function drawDeployments({ views, nodes }: DemoScene): string {
  const names = new Map(nodes.map(({ node_id, name }) => [node_id, name]));
  const rows = [...views]
    .sort((a, b) => (a.type === b.type ? compare(a.name, b.name) : compare(b.type, a.type)))
    .flatMap((view) => rowsOf(view, names));
  return table(["DEPLOYMENT", "TYPE", "NODE", "STATE", "PID", "TERM"], rows);
}

/** One row for a deployment, one row per node for a daemon. */
function rowsOf(view: DeploymentView, names: ReadonlyMap<string, string>): Cell[][] {
  const current = view.status.filter(
    ({ address, generation }) =>
      generation === view.generation &&
      names.has(address) &&
      (view.type === "daemon" || address === view.address),
  );
  if (current.length === 0) return [[view.name, view.type, "-", "unassigned", "-", "-"]];
  return current.map(({ address, state, pid }) => [
    view.name,
    view.type,
    names.get(address) ?? address,
    { text: state, paint: state === "running" ? pc.green : pc.yellow },
    String(pid ?? "-"),
    String(view.generation),
  ]);
}

const indented = (text: string): string => text.replace(/^/gm, "  ");
const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** Copied here by the build, so that the installed package contains them. */
export const EXAMPLES = fileURLToPath(new URL("../examples", import.meta.url));
export const URL_DEFAULT = "http://127.0.0.1:7070";
export const flag = (url: string): string => (url === URL_DEFAULT ? "" : ` --url ${url}`);
