import { isDeploymentType } from "@tenure/protocol";
import type { DeploymentRow } from "../deployment-row.ts";
import { skipProblem } from "../row-problems.ts";
import { hasGoodSpecification, isUnreadable, type Specification } from "../store/row-reader.ts";

/**
 * The form in which the copy holds a row. A good row is itself. A bad one keeps its owner and its term and says to run
 * what it said last when that was good, so that its child goes on, here and at agents that would take a missing row for
 * a deleted one. It is handed over to no other node.
 */
export function skippedForm(
  row: DeploymentRow,
  { spec, former }: { spec: Specification | undefined; former: DeploymentRow | undefined },
): DeploymentRow {
  const skipped = skipProblem(row);
  if (!skipped) return row;
  const kept = { ...row, ...spec, moving_to: "", move_state: "" as const, skipped };
  // A term that cannot be read is the one it had here, if it had one.
  const isTermKnown = !isUnreadable(row, "generation");
  const generation = isTermKnown ? row.generation : former?.generation;
  if (generation !== undefined && (spec || hasGoodSpecification(row)))
    return { ...kept, generation };
  // A bad type alone can be sent as it is: every agent knows to skip it.
  const isHidden = row.invalid !== undefined || isDeploymentType(row.type);
  return { ...kept, ...(isHidden && { isHidden }) };
}
