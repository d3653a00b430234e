import { DEFAULT_TENANT, type DeploymentView } from "@tenure/protocol";
import pc from "picocolors";
import { type Cell, cut, table } from "../output.ts";
import { printable } from "../printable.ts";
import { currentStatuses } from "./rolling.ts";

/** Keeps a list with usual names within 120 columns. */
const RUNS_WIDTH = 48;

/** Names of the present nodes, by address. */
export type NodeNames = ReadonlyMap<string, string>;

export function drawList(views: DeploymentView[], names: NodeNames = new Map()): string {
  if (views.length === 0) return "no deployments";
  const isMixed = new Set(views.map(({ tenant = DEFAULT_TENANT }) => tenant)).size > 1;
  const columns = ["NAME", "TYPE", "RUNS", "STATE", "NODE", "TERM", "REVISION"];
  return table(
    isMixed ? ["TENANT", ...columns] : columns,
    views.map((view) => [
      ...(isMixed ? [view.tenant ?? DEFAULT_TENANT] : []),
      view.name,
      view.type,
      cut(view.command || `${view.package_name}@${view.package_version}`, RUNS_WIDTH),
      stateOf(view),
      view.type === "daemon" ? "every" : (names.get(view.address) ?? (short(view.address) || "-")),
      String(view.generation),
      String(view.revision),
    ]),
  );
}

export function drawOne(view: DeploymentView): string {
  const env = Object.keys(view.env).sort().join(", ");
  const facts = [
    ["id", view.id],
    ["tenant", view.tenant === DEFAULT_TENANT ? undefined : view.tenant],
    ["runs", view.command || `${view.package_name}@${view.package_version}`],
    ["args", view.args.join(" ")],
    ["env", env],
    [
      "selector",
      Object.entries(view.selector)
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ],
    ["node", view.address],
    ["moving to", view.moving_to && `${view.moving_to} (${view.move_state})`],
    ["term", String(view.generation)],
    ["revision", String(view.revision)],
    ["updated", view.updated_at],
  ].filter(([, value]) => value);
  const statuses = view.status.map((status): Cell[] => [
    short(status.address),
    status.past ? { text: `was ${status.state}`, paint: pc.dim } : status.state,
    String(status.generation),
    String(status.pid ?? "-"),
    String(status.restarts),
    status.last_error ?? "",
  ]);
  return [
    `${pc.bold(printable(view.name))} ${pc.dim(printable(view.type))}`,
    ...facts.map(([name, value]) => `  ${name!.padEnd(10)} ${printable(value!)}`),
    "",
    statuses.length === 0
      ? pc.dim("no node has reported a status")
      : table(["NODE", "STATE", "TERM", "PID", "RESTARTS", "LAST ERROR"], statuses),
  ].join("\n");
}

function stateOf(view: DeploymentView): Cell {
  if (!view.enabled) return { text: "disabled", paint: pc.dim };
  const states = currentStatuses(view).map(({ state }) => state);
  if (view.type === "daemon" && states.length > 0) {
    const running = states.filter((state) => state === "running").length;
    const paint = running === states.length ? pc.green : pc.yellow;
    return { text: `running ${running}/${states.length}`, paint };
  }
  if (view.status.some(({ address, past }) => past && address === view.address))
    return { text: "node lost", paint: pc.red };
  const state = states[0] ?? (view.address === "" ? "unassigned" : "assigned");
  const paint =
    state === "running"
      ? pc.green
      : ["failed", "refused", "backoff"].includes(state)
        ? pc.red
        : pc.yellow;
  return { text: state, paint };
}

const short = (address: string): string =>
  address.length > 16 ? `${address.slice(0, 12)}…` : address;
