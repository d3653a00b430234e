import type { DeploymentState, DeploymentStatus, DeploymentView } from "@tenure/protocol";
import type { Condition, Tone } from "./tone.ts";

const TONES: Record<DeploymentState, Tone> = {
  installing: "busy",
  starting: "busy",
  running: "good",
  backoff: "bad",
  stopping: "busy",
  stopped: "idle",
  failed: "bad",
  refused: "bad",
};

/** Worst first: a daemon that fails on one node counts as failing. */
const SEVERITY: readonly Tone[] = ["bad", "warn", "busy", "idle", "good"];

/** Statuses of the current term. Those of earlier owners are out of date. */
export function currentStatuses(view: DeploymentView): DeploymentStatus[] {
  return view.status.filter(
    ({ generation, address, past }) =>
      !past &&
      generation === view.generation &&
      (view.type === "daemon" || address === view.address),
  );
}

/** `isOnline`: whether the node of an address is online; by default every node is. */
export function deploymentCondition(
  view: DeploymentView,
  isOnline: (address: string) => boolean = () => true,
): Condition {
  if (!view.enabled) return { tone: "idle", word: "disabled" };
  if (view.type === "daemon") return daemonCondition(view, isOnline);
  if (view.type !== "deployment") {
    return { tone: "bad", word: "skipped", detail: `its type ${view.type} is unknown` };
  }
  if (view.address === "") return { tone: "warn", word: "unassigned" };
  if (!isOnline(view.address)) return { tone: "bad", word: "node lost" };
  if (view.moving_to !== "") return { tone: "busy", word: "moving" };
  const [status] = currentStatuses(view);
  if (!status) return { tone: "busy", word: "claimed", detail: "no report from the node yet" };
  return statusCondition(status);
}

export function statusCondition({ state, last_error, past }: DeploymentStatus): Condition {
  if (past) return { tone: "idle", word: `was ${state}` };
  const condition = { tone: TONES[state], word: state };
  return last_error && TONES[state] === "bad" ? { ...condition, detail: last_error } : condition;
}

function daemonCondition(view: DeploymentView, isOnline: (address: string) => boolean): Condition {
  const statuses = currentStatuses(view).filter(({ address }) => isOnline(address));
  if (statuses.length === 0) return { tone: "idle", word: "on no node" };
  const conditions = statuses.map(statusCondition);
  const worst = SEVERITY.find((tone) => conditions.some((one) => one.tone === tone))!;
  const alike = conditions.filter(({ tone }) => tone === worst);
  const { word, detail } = alike[0]!;
  const of = alike.length === statuses.length ? "" : ` of ${statuses.length}`;
  return { tone: worst, word: `${word} on ${alike.length}${of}`, ...(detail && { detail }) };
}

export const GROUPS = ["running", "pending", "failing", "disabled"] as const;
export type Group = (typeof GROUPS)[number];

export function groupOf({ tone, word }: Condition): Group {
  if (word === "disabled") return "disabled";
  if (tone === "bad") return "failing";
  return tone === "good" ? "running" : "pending";
}

/** Package or command, in one line. */
export function runs(view: Pick<DeploymentView, "package_name" | "package_version" | "command">) {
  const { package_name: name, package_version: version, command } = view;
  if (name === "") return command;
  return version === "" ? name : `${name}@${version}`;
}

export function restartsOf(view: DeploymentView): number {
  return currentStatuses(view).reduce((sum, { restarts }) => sum + restarts, 0);
}
