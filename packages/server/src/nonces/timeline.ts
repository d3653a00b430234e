import { isTenureError, TenureError } from "@tenure/protocol";
import type { Log } from "../kernel/log.ts";
import type { Db } from "../store/db.ts";
import { compareTimeline, type TimelineCheck } from "./timeline-store.ts";

/**
 * Asked of every new connection that nonces are written through, before its first use. A Postgres of another
 * system or timeline (a promoted standby, a restored backup) may lack numbers that were handed out: it is not
 * written to until an operator has looked and confirmed. Connections that are open stay with the history they saw.
 */
export async function refuseOtherTimeline(connection: Db, log: Log): Promise<void> {
  const check = await compareTimeline(connection).catch((error: unknown) => unknown(error, log));
  if (!check || isSame(check)) return;
  log.error(
    { event: "timeline.refused", ...check },
    "Postgres came back as another history and may lack numbers that were handed out; confirm with POST /api/v1/cluster/confirm-timeline",
  );
  throw new TenureError("DEPENDENCY_DOWN", { dependency: "postgres", reason: "timeline" });
}

export async function isTimelineConfirmed(db: Db): Promise<boolean> {
  const check = await compareTimeline(db).catch(() => undefined);
  return check === undefined || isSame(check);
}

const isSame = ({ actual, confirmed }: TimelineCheck): boolean =>
  actual.system_identifier === confirmed.system_identifier &&
  actual.timeline === confirmed.timeline;

/** Some managed services forbid the question. Then nobody watches, which is worth a line at every connect. */
function unknown(error: unknown, log: Log): undefined {
  if ((error as { code?: string }).code !== "42501" || isTenureError(error, "DEPENDENCY_DOWN"))
    throw error;
  log.warn(
    { event: "timeline.unknown", error },
    "this role may not read which Postgres this is: a failover that lost commits would not be noticed",
  );
}
