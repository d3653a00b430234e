import type { DeploymentState } from "@tenure/protocol";
import type { NewEvent } from "../store/event-store.ts";
import type { Report } from "./deployment-row.ts";
import type { ReportEvent } from "./store/report-event-store.ts";
import type { RecordedReport } from "./store/status-store.ts";

const EVENTS: Partial<Record<DeploymentState, { event: NewEvent["event"]; outcome: string }>> = {
  failed: { event: "deployment.failed", outcome: "failed" },
  refused: { event: "deployment.refused", outcome: "was refused" },
  backoff: { event: "deployment.crashed", outcome: "ended and will be restarted" },
};

/**
 * The event for a report of a new failure; undefined for other reports. A node reports a daemon that was found missing with
 * an error text that begins with `ERR_DAEMON_MISSING`.
 */
export function reportEvent({
  address,
  report,
  recorded,
}: {
  address: string;
  report: Report;
  recorded: RecordedReport;
}): ReportEvent | undefined {
  const { deployment_id: subject, state, generation, last_error } = report;
  const details = {
    address,
    generation,
    ...(report.exit_code != null && { exit_code: report.exit_code }),
    ...(report.signal != null && { signal: report.signal }),
    ...(last_error != null && { last_error }),
  };
  if (recorded.former_state === state) return undefined;
  if (recorded.type === "daemon" && last_error?.startsWith("ERR_DAEMON_MISSING")) {
    const message = `daemon ${recorded.name} is enabled but was found not running`;
    return { event: "daemon.missed", code: "ERR_DAEMON_MISSING", message, subject, details };
  }
  const known = EVENTS[state];
  if (!known) return undefined;
  const message = `deployment ${recorded.name} ${known.outcome}`;
  return { event: known.event, message, subject, details };
}
