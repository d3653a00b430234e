import { type CallParams, type CallResult, TenureError } from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import type { Telemetry } from "../telemetry.ts";
import type { CachedDeployments } from "./cache/cached-deployments.ts";
import { type DeploymentNode, readerOf, termOf } from "./deployment-node.ts";
import { refuseUnfitDaemon } from "./report-admission.ts";
import { reportEvent } from "./report-event.ts";
import { giveMoveBack, markMoveReady, markStopped } from "./store/move-store.ts";
import { appendReportEvent } from "./store/report-event-store.ts";
import { type RecordedReport, recordReport } from "./store/status-store.ts";

export interface ReportOptions {
  db: Db;
  cached: CachedDeployments;
  telemetry: Pick<Telemetry, "deploymentReports">;
}

/** Answers `deployment.report`: stores the state that a node reports, its event, and the step of a move. */
export function createReport({ db, cached, telemetry }: ReportOptions) {
  return async (
    node: DeploymentNode,
    report: CallParams<"deployment.report">,
  ): Promise<CallResult<"deployment.report">> => {
    const { address, epoch } = termOf(node);
    const { deployment_id: id, generation, lost_after_ms } = report;
    await refuseUnfitDaemon(cached, readerOf(node), report);
    const recorded = await recordReport(db, { address, epoch }, report);
    telemetry.deploymentReports.inc({ result: recorded?.current ? "recorded" : "fenced" });
    if (!recorded) throw new TenureError("NOT_FOUND", { what: "deployment", id });
    if (!recorded.current)
      throw new TenureError("FENCED", { resource: `deployment ${id}`, fencing_token: generation });
    const event = reportEvent({ address, report, recorded });
    if (event) await appendReportEvent(db, event, !recorded.was_stable);
    await advanceMove(db, { id, address, generation }, report.state, recorded);
    return lost_after_ms === undefined ? {} : { lost_after_ms };
  };
}

/** A report may be a step of a move to another node; see docs/protocol.md. */
async function advanceMove(
  db: Db,
  step: { id: string; address: string; generation: number },
  state: CallParams<"deployment.report">["state"],
  { address, moving_to, move_state }: RecordedReport,
): Promise<void> {
  if (moving_to === "") return;
  if (step.address === moving_to) {
    if (state === "failed" || state === "refused") await giveMoveBack(db, step);
    else if (state === "stopped" && move_state === "installing") await markMoveReady(db, step);
  } else if (
    step.address === address &&
    (state === "stopped" || state === "refused") &&
    move_state === "ready"
  ) {
    await markStopped(db, step);
  }
}
