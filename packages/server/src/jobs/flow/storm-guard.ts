import type { JobsContext } from "../context.ts";
import { markUnavailable, opensNotice } from "../store/storm-store.ts";

/** Nodes that say they cannot serve a service are left out for it for a while, on every instance. */
export interface StormGuard {
  unavailable(nodeId: string, service: string): Promise<void>;
}

const SERVICES_MAX = 1_000;

export function createStormGuard({
  hot,
  settings: { storm },
  roster,
  meter,
  clock,
  log,
}: JobsContext): StormGuard {
  /** When the store was last asked whether to log about a service: a storm asks it once per window. */
  const asked = new Map<string, number>();

  /** One line per service and window for all instances together. */
  async function logOnce(nodeId: string, service: string): Promise<void> {
    const nowMs = clock.monotonicMs();
    if (nowMs - (asked.get(service) ?? Number.NEGATIVE_INFINITY) < storm.debounceWindowMs) return;
    if (asked.size >= SERVICES_MAX) asked.clear();
    asked.set(service, nowMs);
    if (!(await opensNotice(hot, service, storm.debounceWindowMs))) return;
    log.warn({ event: "service.unavailable", service, nodeId }, "a node cannot serve it for now");
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
      meter.stormReported(result);
      if (result !== "limited") roster.mark(nodeId, service, storm.unavailableTtlMs);
      // The retry of the job does not wait for a log line, nor fail with it.
      logOnce(nodeId, service).catch(() => {});
    },
  };
}
