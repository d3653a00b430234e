import {
  type ListedDeployment,
  type MatchWhole,
  type NodeTraits,
  unfitness,
} from "@tenure/protocol";
import type { DesiredDeployment } from "../executor/contract.ts";
import { desiredHere } from "./plan.ts";

/** Maps the rows for this node to what its executor should do with each. */
export function desiredState(
  rows: readonly ListedDeployment[],
  node: NodeTraits,
  matches: MatchWhole,
): DesiredDeployment[] {
  const own = desiredHere(rows, node, matches).map(({ row, refused }) =>
    isHandedOver(row)
      ? { row, refused: [], mode: "hold" as const }
      : { row, refused, mode: "run" as const },
  );
  const next = rows
    .filter(
      ({ type, enabled, address, moving_to }) =>
        type === "deployment" && enabled && moving_to === node.address && address !== node.address,
    )
    .map((row) => ({ row, refused: unfitness(row, node, matches), mode: "prepare" as const }));
  return [...own, ...next];
}

/** Whether the next node has installed the deployment and waits: then it is not started here again. */
const isHandedOver = ({ type, moving_to, move_state }: ListedDeployment): boolean =>
  type === "deployment" && moving_to !== "" && (move_state === "ready" || move_state === "stopped");
