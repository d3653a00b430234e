import type { JobsParts } from "../parts.ts";
import { markUnavailable, opensNotice } from "../store/storm-store.ts";

/** Leaves a node that cannot serve a service out for that service for a while, on every instance. */
export interface StormGuard {
  unavailable(nodeId: string, service: string): Promise<void>;
}

const SERVICES_MAX = 1_000;

export function createStormGuard({
  hot,
  settings: { storm },
  nodePool,
  metrics,
  clock,
  log,
}: Pick<JobsParts, "hot" | "settings" | "nodePool" | "metrics" | "clock" | "log">): StormGuard {
  /** By service: when the store was last asked whether to log. A storm asks once per window. */
  const asked = new Map<string, number>();

  /** Logs one line per service and window, for all instances together. */
  async function logOnce(nodeId: string, service: string): Promise<void> {
    const nowMs = clock.monotonicMs();
    if (nowMs - (asked.get(service) ?? Number.NEGATIVE_INFINITY) < storm.debounceWindowMs) return;
    if (asked.size >= SERVICES_MAX) asked.clear();
    asked.set(service, nowMs);
    if (!(await opensNotice(hot, service, storm.debounceWindowMs))) return;
    log.warn(
      { event: "service.unavailable", service, nodeId },
      "a node cannot serve this service; it is left out for it for a while",
    );
  }

  return {
    async unavailable(nodeId, service) {
      const result = await markUnavailable(hot, {
        nodeId,
        service,
        ttlMs: storm.unavailableTtlMs,
        windowMs: storm.reportWindowMs,
        reportsMax: storm.reportsMax,
      });
      metrics.stormReported(result);
      if (result !== "limited") nodePool.mark(nodeId, service, storm.unavailableTtlMs);
      // The retry of the job does not depend on a log line.
      logOnce(nodeId, service).catch(() => {});
    },
  };
}
