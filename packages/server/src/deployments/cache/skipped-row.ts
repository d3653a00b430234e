import { isDeploymentType } from "@tenure/protocol";
import type { DeploymentRow } from "../deployment-row.ts";
import { skipProblem } from "../row-problems.ts";
import { hasGoodSpecification, isUnreadable, type Specification } from "../store/row-reader.ts";

/**
 * The cached form of a row. A valid row is cached as it is. An invalid one keeps its owner and its term and gets its last
 * good specification, so that its child keeps running: agents would take a missing row for a deleted one. It is not
 * handed over to another node.
 */
export function skippedForm(
  row: DeploymentRow,
  { spec, former }: { spec: Specification | undefined; former: DeploymentRow | undefined },
): DeploymentRow {
  const skipped = skipProblem(row);
  if (!skipped) return row;
  const kept = { ...row, ...spec, moving_to: "", move_state: "" as const, skipped };
  // A term that cannot be read keeps the cached value.
  const isTermKnown = !isUnreadable(row, "generation");
  const generation = isTermKnown ? row.generation : former?.generation;
  if (generation !== undefined && (spec || hasGoodSpecification(row)))
    return { ...kept, generation };
  // A row with an unknown type can be sent as it is: every agent skips it.
  const isHidden = row.invalid !== undefined || isDeploymentType(row.type);
  return { ...kept, ...(isHidden && { isHidden }) };
}
