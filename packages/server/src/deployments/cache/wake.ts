import { assignmentOf } from "../assignment.ts";
import { type DeploymentRow, tenantOf } from "../deployment-row.ts";

/** The nodes that a change concerns at once; the others see it at their next pass. */
export interface Wake {
  /** The tenants of the deployment; undefined: all. */
  tenants: string[] | undefined;
  /** All node-units that serve these tenants. */
  all: boolean;
  nodes: string[];
}

/**
 * A daemon, and a row that may be claimed now, concerns all nodes. Another row concerns its former, present and next owner:
 * if a claim woke all nodes, 1,000 claims would wake each of them 1,000 times.
 */
export function wakeFor(before: DeploymentRow | undefined, after: DeploymentRow | undefined): Wake {
  const all =
    before?.type === "daemon" ||
    after?.type === "daemon" ||
    (after !== undefined && assignmentOf(after) === "unassigned");
  const nodes = [before?.address, after?.address, before?.moving_to, after?.moving_to];
  return {
    tenants: [before, after].flatMap((row) => (row ? tenantOf(row) : [])),
    all,
    nodes: [...new Set(nodes.filter((node) => node !== undefined && node !== ""))] as string[],
  };
}
