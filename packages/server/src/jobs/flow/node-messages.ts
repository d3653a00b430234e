import { cutText, TenureError, toErrorMessage } from "@tenure/protocol";
import { assignText } from "../api/frames.ts";
import { type AttemptPlace, stateLimitMs, type TrackedJob } from "../job.ts";
import type { NodeConnection } from "../memory/connections.ts";
import type { JobsParts } from "../parts.ts";
import { readJob } from "../store/job-store.ts";
import { takeAttempt } from "../store/transition-store.ts";

const CANCEL_LIMIT_MS = 60_000;

/** Sends `job_assign`. `false`: the job has ended meanwhile, and its payload is gone. */
export async function sendAssign(
  parts: Pick<JobsParts, "hot" | "tracked">,
  node: NodeConnection,
  job: TrackedJob,
): Promise<boolean> {
  const payload = job.payload ?? (await readJob(parts.hot, job.jobId, { payload: true }))?.payload;
  if (payload === undefined) return false;
  sendPayload(parts, node, job, payload);
  return true;
}

/** The same for a job whose payload is at hand. */
export function sendPayload(
  { hot, tracked }: Pick<JobsParts, "hot" | "tracked">,
  { link }: NodeConnection,
  job: TrackedJob,
  payload: string,
): void {
  const { takesAs } = link;
  if (job.takenBy !== takesAs) {
    // Another instance wrote DISPATCHED, or another process has connected since.
    job.takenBy = takesAs;
    tracked.setDeadline(job, "state", stateLimitMs(job) ?? job.ackTimeoutMs);
    const { jobId, attemptId } = job;
    // If this is lost, the loss of the node counts as for the former process.
    takeAttempt(hot, { jobId, attemptId, bootId: takesAs }).catch(() => {});
  }
  const frame = assignText(job, payload);
  const whole = link.acks?.onto(frame) ?? frame;
  link.sendText(whole);
  link.acks?.tookAlong(whole, frame);
  job.payload = undefined;
}

/** Sends `job_cancel` to the node, through its instance if it is not connected here. */
export function cancelOnNode(
  parts: Pick<JobsParts, "hot" | "instanceId" | "connections" | "nodePool" | "send" | "storeClock">,
  { jobId, attemptId, nodeId }: AttemptPlace & { jobId: string },
  reason: string,
): void {
  const message = { job_id: jobId, attempt_id: attemptId, reason: cutText(reason, 200) };
  const near = parts.connections.node(nodeId);
  near?.link.send({ type: "job_cancel", ...message });
  if (near) return;
  const far = parts.nodePool.get(nodeId)?.instanceId;
  if (!far || far === parts.instanceId || parts.hot.kind === "memory") return;
  const deadline_ms = parts.storeClock.nowMs() + CANCEL_LIMIT_MS;
  // If it is lost, the node's next heartbeat names an attempt that is over, and the answer cancels it.
  parts.send(far, { kind: "job.cancel", ...message, node_id: nodeId, deadline_ms }).catch(() => {});
}

/** Reports a job whose record was lost with the store's memory to its session. The client may submit it again. */
export function reportLoss(
  { notifier }: Pick<JobsParts, "notifier">,
  { jobId, requestId, sessionId }: TrackedJob,
): void {
  const reason = "the job was lost with the store's memory";
  const error = new TenureError("DEPENDENCY_DOWN", { dependency: "the hot store", reason });
  const about = { request_id: requestId, job_id: jobId };
  if (sessionId) notifier.send(sessionId, JSON.stringify(toErrorMessage(error, about)));
}
