import { CLAIM_CANDIDATES_MAX, type ListedDeployment } from "@tenure/protocol";
import { byAge } from "../claim/plan.ts";
import { hash } from "./hash.ts";

// Everybody looks at the same oldest rows, and those who come after them would wait for their turn. Where many more rows
// are free than that, a node also looks into a corner of the list that it shares with few: ten thousand nodes then claim
// side by side, and a pass is no longer for it.

const CORNERS = 1_024;
/** A corner that is empty is no reason to wait: its neighbours are looked at, too. */
const LOOKED_MAX = 16;

export const cornerOf = (id: string): number => hash(id) % CORNERS;

/** As many rows as a claim may name, of this node's corner first. */
export function inCornerOf(
  me: string,
  rowsIn: (corner: number) => Iterable<ListedDeployment>,
): ListedDeployment[] {
  const found: ListedDeployment[] = [];
  for (let nth = 0; nth < LOOKED_MAX && found.length < CLAIM_CANDIDATES_MAX; nth++)
    found.push(...rowsIn((cornerOf(me) + nth) % CORNERS));
  return found.sort(byAge).slice(0, CLAIM_CANDIDATES_MAX);
}
