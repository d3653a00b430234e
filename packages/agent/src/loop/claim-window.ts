import { CLAIM_CANDIDATES_MAX, type ListedDeployment } from "@tenure/protocol";
import { byAge } from "../claim/plan.ts";
import { hash } from "./hash.ts";

// Every node sees the same oldest rows and waits for its place in the claim order. When many more rows are free, each
// node also has a claim window: a few of 1,024 shards of the free rows, shared with few others. So 10,000 nodes claim in
// parallel at no extra cost per pass.

const SHARDS = 1_024;
/** Neighbouring shards are included, because a node's own shard may be empty. */
const WINDOW_SHARDS_MAX = 16;

export const shardOf = (id: string): number => hash(id) % SHARDS;

/** The rows of a node's window, oldest first, as many as one claim may name. */
export function rowsInWindow(
  me: string,
  rowsIn: (shard: number) => Iterable<ListedDeployment>,
): ListedDeployment[] {
  const found: ListedDeployment[] = [];
  for (let nth = 0; nth < WINDOW_SHARDS_MAX && found.length < CLAIM_CANDIDATES_MAX; nth++)
    found.push(...rowsIn((shardOf(me) + nth) % SHARDS));
  return found.sort(byAge).slice(0, CLAIM_CANDIDATES_MAX);
}
