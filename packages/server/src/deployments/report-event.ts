import type { DeploymentState } from "@tenure/protocol";
import type { NewEvent } from "../store/event-store.ts";
import type { Report } from "./deployment-row.ts";
import type { ReportEvent } from "./store/report-event-store.ts";
import type { RecordedReport } from "./store/status-store.ts";

const TOLD: Partial<Record<DeploymentState, { event: NewEvent["event"]; says: string }>> = {
  failed: { event: "deployment.failed", says: "failed" },
  refused: { event: "deployment.refused", says: "was refused" },
  backoff: { event: "deployment.crashed", says: "ended and will be started again" },
};

/**
 * What of a report is worth an event: a state that somebody should look at, when it is new. A daemon that was
 * found missing is told by its node as an error that begins with the seed's code.
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
  const told = TOLD[state];
  if (!told) return undefined;
  const message = `deployment ${recorded.name} ${told.says}`;
  return { event: told.event, message, subject, details };
}
