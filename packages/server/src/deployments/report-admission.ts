import { type CallParams, TenureError, unfitness } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { CachedDeployments } from "./cache/cached-deployments.ts";
import type { ListReader } from "./cache/list-delta.ts";

/** The states of a daemon that the node does not run, or no longer runs. */
export const ENDED_STATES: ReadonlySet<string> = new Set(["refused", "stopped", "stopping"]);

/**
 * Throws `FORBIDDEN` for a report about a daemon by a node that may not run it. A daemon has no owner, so without this any
 * node could report that it runs. A node that may no longer run the daemon can still report that it stops.
 */
export async function refuseUnfitDaemon(
  cached: Pick<CachedDeployments, "cache" | "refresh">,
  reader: ListReader,
  { deployment_id: id, state }: Pick<CallParams<"deployment.report">, "deployment_id" | "state">,
): Promise<void> {
  if (ENDED_STATES.has(state) || !unfitDaemon()) return;
  // The node may have read a newer row from another instance.
  await cached.refresh();
  const unfit = unfitDaemon();
  if (unfit)
    throw new TenureError("FORBIDDEN", { reason: `this node may not run the daemon: ${unfit}` });

  function unfitDaemon() {
    const row = cached.cache.get(id);
    if (row?.type !== "daemon" || row.skipped) return undefined;
    return unfitness(row, reader, matchWhole)[0];
  }
}
