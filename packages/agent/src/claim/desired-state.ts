import {
  type ListedDeployment,
  type MatchWhole,
  type NodeTraits,
  unfitness,
} from "@tenure/protocol";
import type { Wanted } from "../executor/contract.ts";
import { desiredHere } from "./plan.ts";

/** From the rows that concern this node to what its executor should do about each. */
export function wantedHere(
  rows: readonly ListedDeployment[],
  node: NodeTraits,
  matches: MatchWhole,
): Wanted[] {
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

/** The next node has it installed and waits: it must not be started here again. */
const isHandedOver = ({ type, moving_to, move_state }: ListedDeployment): boolean =>
  type === "deployment" && moving_to !== "" && (move_state === "ready" || move_state === "stopped");
