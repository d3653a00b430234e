import { TenureError } from "@tenure/protocol";
import type { JobsContext } from "./context.ts";

export interface TenantLimits {
  /** Counts a submit. Throws `RATE_LIMITED` or `QUEUE_FULL` when the tenant is at a limit. */
  check(tenant: string): void;
}

const WINDOW_MS = 1_000;

/** One tenant must not take the place of all others. Both limits are this instance's own: nobody is asked. */
export function createTenantLimits({
  settings: { tenantSubmitsPerSecondMax: perSecondMax, tenantJobsOpenMax: openMax },
  clock,
  book,
}: Pick<JobsContext, "settings" | "clock" | "book">): TenantLimits {
  let windowBeganMs = Number.NEGATIVE_INFINITY;
  const submits = new Map<string, number>();

  return {
    check(tenant) {
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
      if (openMax > 0 && book.openOf(tenant) >= openMax)
        throw new TenureError("QUEUE_FULL", { queue: `tenant ${tenant}`, limit: openMax });
      submits.set(tenant, count);
    },
  };
}
