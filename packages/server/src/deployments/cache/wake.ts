import { DEFAULT_TENANT } from "@tenure/protocol";
import { assignmentOf } from "../assignment.ts";
import type { DeploymentRow } from "../deployment-row.ts";

/** Whom a change concerns at once; everybody else sees it at their next pass. */
export interface Wake {
  /** The tenants it is about; `undefined` = all. */
  tenants: string[] | undefined;
  everybody: boolean;
  nodes: string[];
}

/**
 * Everybody for a daemon, and for a row that may be claimed now. Else only who had it, has it, or takes it next:
 * a claim wakes nobody but its owner, or a thousand claims would wake every node a thousand times.
 */
export function wakeFor(before: DeploymentRow | undefined, after: DeploymentRow | undefined): Wake {
  const everybody =
    before?.type === "daemon" ||
    after?.type === "daemon" ||
    (after !== undefined && assignmentOf(after) === "unassigned");
  const nodes = [before?.address, after?.address, before?.moving_to, after?.moving_to];
  return {
    tenants: [before, after].flatMap((row) => (row ? (row.tenant ?? DEFAULT_TENANT) : [])),
    everybody,
    nodes: [...new Set(nodes.filter((node) => node !== undefined && node !== ""))] as string[],
  };
}
