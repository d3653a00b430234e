import { TenureError } from "@tenure/protocol";
import type { JobsParts } from "../parts.ts";

export interface TenantLimits {
  /** Counts the payload of a submit until its job is tracked; `leave` ends that. */
  enter(tenant: string, payloadBytes: number): void;
  leave(tenant: string, payloadBytes: number): void;
  /** Counts a submit that has entered. Throws `RATE_LIMITED` or `QUEUE_FULL` if the tenant is at a limit. */
  check(tenant: string, payloadBytes: number): void;
}

const WINDOW_MS = 1_000;

/** Keeps one tenant from using up the room of all others. Each instance counts on its own. */
export function createTenantLimits({
  settings: {
    tenantSubmitsPerSecondMax: perSecondMax,
    tenantJobsOpenMax: openMax,
    tenantPayloadBytesMax: bytesMax,
  },
  clock,
  tracked,
}: Pick<JobsParts, "settings" | "clock" | "tracked">): TenantLimits {
  let windowBeganMs = Number.NEGATIVE_INFINITY;
  const submits = new Map<string, number>();
  const entering = new Map<string, number>();

  function addEntering(tenant: string, bytes: number): void {
    const now = (entering.get(tenant) ?? 0) + bytes;
    if (now === 0) entering.delete(tenant);
    else entering.set(tenant, now);
  }

  return {
    enter: addEntering,
    leave: (tenant, payloadBytes) => addEntering(tenant, -payloadBytes),
    check(tenant, payloadBytes) {
      const nowMs = clock.monotonicMs();
      if (nowMs - windowBeganMs >= WINDOW_MS) {
        windowBeganMs = nowMs;
        submits.clear();
      }
      const count = (submits.get(tenant) ?? 0) + 1;
      if (perSecondMax > 0 && count > perSecondMax) {
        const retry_after_ms = Math.max(1, Math.ceil(windowBeganMs + WINDOW_MS - nowMs));
        throw new TenureError("RATE_LIMITED", { retry_after_ms });
      }
      if (openMax > 0 && tracked.openOf(tenant) >= openMax)
        throw new TenureError("QUEUE_FULL", { queue: `tenant ${tenant}`, limit: openMax });
      const bytes = tracked.payloadBytesOf(tenant) + (entering.get(tenant) ?? 0);
      // A single job is always accepted, however small the limit.
      if (bytesMax > 0 && bytes > bytesMax && bytes > payloadBytes)
        throw new TenureError("QUEUE_FULL", {
          queue: `payload bytes of tenant ${tenant}`,
          limit: bytesMax,
        });
      submits.set(tenant, count);
    },
  };
}
