import type { JobsContext } from "./context.ts";
import { markUnavailable } from "./storm-store.ts";

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
  /** When a line about a service was written last. */
  const told = new Map<string, number>();

  function tell(nodeId: string, service: string): void {
    const nowMs = clock.monotonicMs();
    if (nowMs - (told.get(service) ?? Number.NEGATIVE_INFINITY) < storm.debounceWindowMs) return;
    if (told.size >= SERVICES_MAX) told.clear();
    told.set(service, nowMs);
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
      tell(nodeId, service);
    },
  };
}
