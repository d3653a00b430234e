import { isDeploymentType } from "@tenure/protocol";

/** The state of a deployment, by its row and the members view: `lost` is assigned to a node that is not present. */
export type Assignment = "unassigned" | "assigned" | "lost" | "disabled" | "daemon" | "invalid";

export interface Assignable {
  /** Set when node-units skip the row. */
  skipped?: unknown;
  type: string;
  enabled: boolean;
  address: string;
}

export function assignmentOf(
  row: Assignable,
  isPresent: (address: string) => boolean = () => true,
): Assignment {
  if (row.skipped || !isDeploymentType(row.type)) return "invalid";
  if (!row.enabled) return "disabled";
  if (row.type === "daemon") return "daemon";
  if (row.address === "") return "unassigned";
  return isPresent(row.address) ? "assigned" : "lost";
}
