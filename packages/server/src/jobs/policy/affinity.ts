import type { AffinityOutcome } from "@tenure/protocol";
import { type Candidate, exclusionOf, type Wanted } from "./node-selection.ts";

/** Where the turn of a job wants it to go. */
export type TurnChoice =
  | { go: "there" }
  /** Its node is busy: a slot may be free in a moment. */
  | { go: "wait" }
  /** Its node cannot take it; any other may. */
  | { go: "anywhere"; outcome: AffinityOutcome };

/**
 * The turn's node is used when it is there and in the job's pool. When it has no free slot the job waits for it as
 * long as it is patient, then goes the ordinary way. A node on which the job has failed is not tried again.
 */
export function chooseByTurn(
  node: Candidate | undefined,
  wanted: Wanted,
  { isPatient }: { isPatient: boolean },
): TurnChoice {
  if (!node?.online) return { go: "anywhere", outcome: "offline" };
  if (!node.pools.has(wanted.pool)) return { go: "anywhere", outcome: "not_in_pool" };
  if (wanted.former?.has(node.nodeId)) return { go: "anywhere", outcome: "no_slot" };
  const exclusion = exclusionOf(node, wanted);
  if (!exclusion) return { go: "there" };
  // A node that is leaving takes nothing new, however long a job waits. Nor does one that serves this tenant no longer.
  if (exclusion === "draining" || exclusion === "other_tenant")
    return { go: "anywhere", outcome: "offline" };
  return exclusion === "full" && isPatient
    ? { go: "wait" }
    : { go: "anywhere", outcome: "no_slot" };
}
