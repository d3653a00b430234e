import { type CallParams, TenureError, unfitness } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { CachedDeployments } from "./cache/cached-deployments.ts";
import type { ListReader } from "./cache/list-delta.ts";

/** The states of a daemon that the node does not run, or no longer runs. */
export const ENDED_STATES: ReadonlySet<string> = new Set(["refused", "stopped", "stopping"]);

/**
 * Throws for a report about a daemon by a node that may not run it. A daemon has no owner, so without this any
 * node could report that it runs. A node that may no longer run the daemon can still report that it stops.
 */
export async function refuseUnfitDaemon(
  cached: Pick<CachedDeployments, "cache" | "refresh">,
  reader: ListReader,
  { deployment_id: id, state }: Pick<CallParams<"deployment.report">, "deployment_id" | "state">,
): Promise<void> {
  if (ENDED_STATES.has(state) || unfitDaemon().length === 0) return;
  // The node may have read a newer row from another instance.
  await cached.refresh();
  const unfit = unfitDaemon();
  // A node of another tenant must not learn that the deployment exists.
  if (unfit.includes("tenant_not_served"))
    throw new TenureError("NOT_FOUND", { what: "deployment", id });
  if (unfit.length > 0)
    throw new TenureError("FORBIDDEN", { reason: `this node may not run the daemon: ${unfit[0]}` });

  function unfitDaemon() {
    const row = cached.cache.get(id);
    if (row?.type !== "daemon" || row.skipped) return [];
    return unfitness(row, reader, matchWhole);
  }
}
