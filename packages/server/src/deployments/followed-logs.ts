import { serves } from "@tenure/protocol";
import type { Scope } from "../kernel/scope.ts";
import type { RowChange } from "./cache/cached-deployments.ts";
import { tenantOf } from "./deployment-row.ts";

/** The logs that callers of this instance follow. */
export interface FollowedLogs {
  /** Until `signal` aborts. Returns a signal that aborts when the deployment leaves the scope. */
  add(scope: Scope, id: string, signal: AbortSignal): AbortSignal;
  /** Ends the logs of deployments that were deleted, or moved to a tenant that their reader does not see. */
  onChanges(changes: readonly RowChange[]): void;
}

/** A caller was admitted by the tenant that the deployment had then, and a log is followed for days. */
export function createFollowedLogs(): FollowedLogs {
  const followed = new Map<string, Set<{ scope: Scope; left: AbortController }>>();

  return {
    add(scope, id, signal) {
      const log = { scope, left: new AbortController() };
      if (signal.aborted) return log.left.signal;
      const logs = followed.get(id) ?? new Set();
      followed.set(id, logs.add(log));
      const forget = () => {
        logs.delete(log);
        if (logs.size === 0 && followed.get(id) === logs) followed.delete(id);
      };
      signal.addEventListener("abort", forget, { once: true });
      return log.left.signal;
    },
    onChanges(changes) {
      for (const { id, after } of changes) {
        for (const { scope, left } of followed.get(id) ?? []) {
          if (!after || !serves(scope.tenants, tenantOf(after))) left.abort();
        }
      }
    },
  };
}
