import { serves } from "@tenure/protocol";
import type { Log } from "../kernel/log.ts";
import type { Db } from "../store/db.ts";
import { appendEventOnce } from "../store/event-store.ts";
import type { Telemetry } from "../telemetry.ts";
import type { CacheRefresh, RowChange } from "./cache/cached-deployments.ts";
import type { DeploymentCache } from "./cache/deployment-cache.ts";
import { currentRevision } from "./cache/list-delta.ts";
import { type Wake, wakeFor } from "./cache/wake.ts";
import { type DeploymentNode, readerOf } from "./deployment-node.ts";
import { tenantOf } from "./deployment-row.ts";
import { daemonTwins, rowProblems } from "./row-problems.ts";

export interface ChangeNotifierOptions {
  /** Identifies this boot of this instance in the revisions of lists. */
  origin: string;
  db: Db;
  log: Log;
  cache: () => DeploymentCache;
  connected: () => readonly DeploymentNode[];
  /** A deployment, or a node's report about it, changed. */
  onChange: (id: string, op: "changed" | "removed", tenants: readonly string[]) => void;
  telemetry: Pick<Telemetry, "deployments">;
}

const COUNTED = ["unassigned", "assigned", "disabled", "daemon", "invalid"] as const;

/** Passes changes of the cache on: to node-units, to the event stream, to metrics, and as events about invalid rows. */
export function createChangeNotifier(options: ChangeNotifierOptions) {
  const { db, log, telemetry, onChange } = options;

  /** Sends one message to each node that the changes concern. */
  function wakeNodes(wakes: readonly Wake[]): void {
    const forAll = wakes.filter((wake) => wake.all);
    const isFor = ({ snapshot }: DeploymentNode, { tenants }: Wake): boolean =>
      tenants?.some((tenant) => serves(snapshot.tenants, tenant)) ?? true;
    const named = new Set(wakes.flatMap((wake) => wake.nodes));
    for (const node of options.connected()) {
      if (!node.isNodeUnit) continue;
      if (!named.has(node.nodeId) && !forAll.some((wake) => isFor(node, wake))) continue;
      const revision = currentRevision(options.cache(), options.origin, readerOf(node));
      node.link.send({ type: "deployments_changed", revision });
    }
  }

  function publish({ id, before, after }: RowChange): void {
    onChange(id, after ? "changed" : "removed", tenantsOf(after ?? before));
    // A deployment that moved to another tenant is removed for the former one.
    if (before && after && before.tenant !== after.tenant)
      onChange(id, "removed", tenantsOf(before));
  }

  async function reportProblems({ before, after }: RowChange): Promise<void> {
    if (!after) return;
    const { skipped } = after;
    if (skipped && skipped.message !== before?.skipped?.message)
      log.error(
        { event: skipped.event, code: skipped.code, deploymentId: after.id },
        skipped.message,
      );
    const problems = [...rowProblems(after), ...daemonTwins(after, options.cache().rows())];
    for (const problem of problems) await appendEventOnce(db, problem);
  }

  return {
    wakeNodes,
    async onRefresh({ changes, reported }: CacheRefresh): Promise<void> {
      wakeNodes(changes.map(({ before, after }) => wakeFor(before, after)));
      for (const change of changes) publish(change);
      for (const id of reported) onChange(id, "changed", tenantsOf(options.cache().get(id)));
      for (const assignment of COUNTED)
        telemetry.deployments.set({ assignment }, options.cache().count(assignment));
      for (const change of changes) await reportProblems(change);
    },
  };
}

const tenantsOf = (row: { tenant?: string | undefined } | undefined): string[] =>
  row ? [tenantOf(row)] : [];
