import { isDeploymentType } from "@tenure/protocol";

/** What the table says of a row, and what the members view adds to it: `lost` is `assigned` to nobody present. */
export type Assignment = "unassigned" | "assigned" | "lost" | "disabled" | "daemon" | "invalid";

export const ASSIGNMENT_EVENTS = [
  "claim",
  "release",
  "lose",
  "return",
  "disable",
  "enable",
] as const;
export type AssignmentEvent = (typeof ASSIGNMENT_EVENTS)[number];

type Row<Events = typeof ASSIGNMENT_EVENTS> = { [E in keyof Events]: Assignment | null };
const no = null; // Refused, or without effect. Every cell is a decision; none is an omission.

// `disabled` keeps its address: enabled again it is assigned, or lost when its node has gone meanwhile.
const NEXT: Record<Assignment, Row> = {
  //           claim       release       lose    return      disable     enable
  unassigned: ["assigned", no, no, no, "disabled", no],
  assigned: [no, no, "lost", no, "disabled", no],
  lost: [no, "unassigned", no, "assigned", "disabled", no],
  disabled: [no, no, no, no, no, "unassigned"],
  daemon: [no, no, no, no, "disabled", no],
  invalid: [no, no, no, no, no, no],
};

export const ASSIGNMENTS = Object.keys(NEXT) as Assignment[];

/** The assignment after `event`, or `null` if a row in this one refuses it. */
export function nextAssignment(current: Assignment, event: AssignmentEvent): Assignment | null {
  return NEXT[current][ASSIGNMENT_EVENTS.indexOf(event)] ?? null;
}

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
