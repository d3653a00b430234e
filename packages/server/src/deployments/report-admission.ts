import { type CallParams, TenureError, unfitness } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { DeploymentCopy } from "./cache/deployment-cache-refresh.ts";
import type { ListReader } from "./cache/list-delta.ts";

/** What a node says of a daemon that it does not run, or not any more. */
export const ENDED_STATES: ReadonlySet<string> = new Set(["refused", "stopped", "stopping"]);

/**
 * Throws for a report on a daemon by a node that the row does not admit. A daemon has no owner, so without this every node
 * could say that it runs. A node that is not admitted any more may still say that it stops.
 */
export async function refuseStranger(
  copy: Pick<DeploymentCopy, "log" | "refresh">,
  reader: ListReader,
  { deployment_id: id, state }: Pick<CallParams<"deployment.report">, "deployment_id" | "state">,
): Promise<void> {
  if (ENDED_STATES.has(state) || !unfitDaemon()) return;
  // The node may have read a newer row from another instance.
  await copy.refresh();
  const unfit = unfitDaemon();
  if (unfit)
    throw new TenureError("FORBIDDEN", { reason: `this node may not run the daemon: ${unfit}` });

  function unfitDaemon() {
    const row = copy.log.get(id);
    if (row?.type !== "daemon" || row.skipped) return undefined;
    return unfitness(row, reader, matchWhole)[0];
  }
}
