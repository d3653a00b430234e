import { failpoint, hasFailpoints } from "#failpoint";
import { SKIPPED, type When } from "../../store/call.ts";
import { stateLimitMs, type TrackedJob } from "../job.ts";
import type { PoolNode } from "../memory/node-pool.ts";
import type { JobsParts } from "../parts.ts";
import { type Advance, type AdvanceAnswer, advance, advanceIf } from "../store/transition-store.ts";
import { logUnlessStoreDown } from "../store-errors.ts";
import type { Turns } from "../turns/turns.ts";
import { sendAssign, sendPayload } from "./node-messages.ts";
import type { Slots } from "./slots.ts";
import type { Next, StartedDispatch } from "./step.ts";

export interface Dispatching {
  parts: JobsParts;
  slots: Slots;
  turns: Pick<Turns, "placedOrEnded">;
  next: Next;
}

type Placed = Pick<TrackedJob, "jobId" | "attemptId" | "affinity">;

/** Writes DISPATCHED together with the steps that it depends on. `dispatch` continues when they have answered. */
export function dispatchIf(
  parts: Pick<JobsParts, "hot" | "instanceId" | "connections">,
  when: When,
  { job, nodeId }: { job: Placed; nodeId: string },
): StartedDispatch {
  const takenBy = parts.connections.node(nodeId)?.link.takesAs;
  return {
    ...advanceIf(parts.hot, when, dispatchedStep(parts, job, { nodeId, takenBy })),
    takenBy,
  };
}

const dispatchedStep = (
  { instanceId }: Pick<JobsParts, "instanceId">,
  { jobId, attemptId, affinity }: Placed,
  { nodeId, takenBy }: { nodeId: string; takenBy: string | undefined },
): Advance => ({
  ...{ jobId, attemptId, nodeId, instanceId },
  steps: [{ event: "dispatched", affinity, takenBy }],
});

/** Writes DISPATCHED, then sends the job to the node, whose slot is reserved. `begun`: it was written with the slot. */
export async function dispatch(
  dispatching: Dispatching,
  job: TrackedJob,
  { node, begun }: { node: PoolNode; begun?: StartedDispatch | undefined },
): Promise<void> {
  const { parts, slots, turns, next } = dispatching;
  const { hot, clock, metrics, tracing, tracked, notifier } = parts;
  const { jobId, attemptId } = job;
  const { nodeId } = node;
  if (hasFailpoints) await failpoint("dispatch.after-reserve");
  const written = await begun?.answer;
  const isBegun = written !== undefined && written !== SKIPPED;
  const takenBy = isBegun ? begun?.takenBy : parts.connections.node(nodeId)?.link.takesAs;
  const advanced: AdvanceAnswer = isBegun
    ? written
    : await advance(hot, dispatchedStep(parts, job, { nodeId, takenBy }));
  const answer = advanced.outcome === "absent" ? "absent" : advanced.answers[0];
  if (answer !== "applied" && answer !== "duplicate") {
    // The job ended while it waited, or another instance placed it first.
    tracked.release(job);
    if (answer === "absent") void next({ do: "report_loss", job });
    return slots.free(nodeId, { jobId, attemptId });
  }
  if (hasFailpoints) await failpoint("dispatch.after-dispatched");
  if (!tracked.has(job)) return; // cancelled meanwhile; the cancel frees the slot
  job.state = "DISPATCHED";
  job.nodeId = nodeId;
  job.takenBy = takenBy;
  tracked.setDeadline(job, "state", stateLimitMs(job) ?? job.ackTimeoutMs);
  metrics.dispatched((clock.monotonicMs() - job.sinceMs) / 1_000);
  metrics.affinity(job.affinity);
  tracing.attemptBegun(job);
  turns.placedOrEnded(job);
  notifier.update(job, "DISPATCHED");
  // A node whose socket is about to close counts as not connected: the frame might not arrive.
  const near = parts.nodePool.get(nodeId)?.online ? parts.connections.node(nodeId) : undefined;
  if (!near) return sendFar(dispatching, job, node);
  if (job.payload !== undefined) sendPayload(parts, near, job, job.payload);
  else if (!(await sendAssign(parts, near, job))) return;
  if (hasFailpoints) await failpoint("dispatch.after-sent");
}

/** Sends the job to the instance of the node, which tracks it from there. */
async function sendFar(dispatching: Dispatching, job: TrackedJob, node: PoolNode): Promise<void> {
  const { instanceId, send, storeClock, tracked, tracing } = dispatching.parts;
  const { jobId, attemptId, ackTimeoutMs } = job;
  job.takenBy = undefined; // It was not sent from here.
  if (!node.instanceId || node.instanceId === instanceId)
    return retry(dispatching, job, "node_lost");
  const sent = await send(node.instanceId, {
    kind: "job.assign",
    job_id: jobId,
    attempt_id: attemptId,
    node_id: node.nodeId,
    deadline_ms: storeClock.nowMs() + ackTimeoutMs,
  });
  if (hasFailpoints) await failpoint("dispatch.after-rung");
  if (sent.outcome === "full") return retry(dispatching, job, "inbox_full");
  tracked.release(job);
  tracing.jobLeft(job);
}

function retry(
  { parts, next }: Dispatching,
  job: TrackedJob,
  reason: "node_lost" | "inbox_full",
): void {
  const onError = logUnlessStoreDown(
    parts.log,
    { event: "job.not-attended", jobId: job.jobId },
    "could not retry job; the recovery worker will",
  );
  Promise.resolve(next({ do: "retry", job, reason })).catch(onError);
}
