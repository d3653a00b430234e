import type { DeploymentView, NodeView } from "@tenure/protocol";
import { currentStatuses } from "./deployment.ts";
import type { Condition } from "./tone.ts";

export function nodeCondition({ online, draining, left_at }: NodeView): Condition {
  if (!online) return { tone: "idle", word: left_at ? "left" : "lost" };
  return draining ? { tone: "warn", word: "draining" } : { tone: "good", word: "online" };
}

/** The larger share of processor and memory. */
export function loadOf({ resource_usage, online }: NodeView) {
  if (!resource_usage || !online) return undefined;
  const { cpu_percent, memory_percent } = resource_usage;
  const percent = Math.max(cpu_percent, memory_percent);
  const label = `Processor ${Math.round(cpu_percent)} %, memory ${Math.round(memory_percent)} %`;
  return { share: percent / 100, label, text: `${Math.round(percent)} %` };
}

/** Number of deployments per node: owned ones and daemons that report from it. */
export function runsByNode(views: Iterable<DeploymentView>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const view of views) {
    if (!view.enabled) continue;
    const addresses =
      view.type === "daemon" ? currentStatuses(view).map(({ address }) => address) : [view.address];
    for (const address of addresses) counts.set(address, (counts.get(address) ?? 0) + 1);
  }
  return counts;
}
