import { serves, TenureError, toErrorMessage } from "@tenure/protocol";
import { failpoint, hasFailpoints } from "#failpoint";
import { atEndOfTick } from "../../kernel/tick.ts";
import { progressFrame } from "../api/frames.ts";
import { isAt, resultText, type TrackedJob } from "../job.ts";
import type { NodeConnection } from "../memory/connections.ts";
import type { PendingReports } from "../memory/pending-reports.ts";
import type { JobsParts } from "../parts.ts";
import type { JobStep, StepAnswer } from "../policy/job-table.ts";
import type { DurableJobs } from "../rows/durable-jobs.ts";
import type { Raised } from "../rows/row-store.ts";
import { rescheduleRecovery } from "../store/recovery-index-store.ts";
import { hasSlot } from "../store/slot-store.ts";
import { type Advanced, advance } from "../store/transition-store.ts";
import { isStoreDown } from "../store-errors.ts";
import type { Adoption } from "./adoption.ts";
import type { AttemptOutcomes } from "./attempt-outcomes.ts";
import {
  addReport,
  type BatchEnd,
  isLarger,
  type NodeReport,
  openBatch,
  type ReportBatch,
  tooLarge,
} from "./report-batch.ts";
import type { Slots } from "./slots.ts";
import type { Next } from "./step.ts";
import type { StormGuard } from "./storm-guard.ts";

const RETRY_PAUSE_MS = 200;
const RETRY_PAUSE_MS_MAX = 2_000;

type Parts = Pick<
  JobsParts,
  | "hot"
  | "instanceId"
  | "clock"
  | "log"
  | "metrics"
  | "tracked"
  | "connections"
  | "nodePool"
  | "notifier"
  | "settings"
>;

interface Collaborators {
  outcomes: Pick<AttemptOutcomes, "afterFailure" | "beginAttempt" | "raise" | "startEnd">;
  durable: Pick<DurableJobs, "end" | "recordFromRow">;
  slots: Pick<Slots, "free">;
  load: Adoption["load"];
  storm: StormGuard;
  pendingReports: PendingReports;
}

type Answer = StepAnswer | "absent";

/** The answer of the row of a durable job to a report: see `#writeRow`. */
type InRow = "current" | "waiting" | "ended" | "stale";

/**
 * Writes the reports of nodes about their attempts. Reports of one tick about one attempt are written together: the
 * acknowledgement, start and result of a short job are one call. Reports that arrive while a call about the attempt is in
 * flight wait for it, so that none overtakes another.
 *
 * While the store is down nothing is lost: calls are retried as long as the node is connected, and a node that reconnects
 * repeats the reports that were not acknowledged.
 */
export class NodeReports {
  readonly #parts: Parts;
  readonly #with: Collaborators;
  readonly #next: Next;
  /** By job, attempt and node. A batch is here until its call is sent. */
  readonly #gathered = new Map<string, ReportBatch>();
  readonly #inFlight = new Set<string>();
  /** Batches to write at the end of this tick. */
  #tick: Set<string> | undefined;

  constructor(parts: Parts, collaborators: Collaborators, next: Next) {
    this.#parts = parts;
    this.#with = collaborators;
    this.#next = next;
  }

  receive(node: NodeConnection, report: NodeReport): void {
    const { settings, tracked } = this.#parts;
    const { job_id: jobId, attempt_id: attemptId } = report;
    if (report.type === "job_progress" && isLarger(report.body.text, settings.resultBytesMax)) {
      node.link.send(toErrorMessage(tooLarge(settings.resultBytesMax), { job_id: jobId }));
      return;
    }
    const job = tracked.get(jobId);
    if (report.type === "job_progress" && isAt(job, { attemptId, nodeId: node.nodeId })) {
      if (job.state === "RUNNING") {
        this.#sendProgress(job, report.body.text);
        return;
      }
    }
    const key = `${jobId}:${attemptId}:${node.nodeId}`;
    let batch = this.#gathered.get(key);
    if (!batch) {
      batch = openBatch(node, report);
      this.#gathered.set(key, batch);
      this.#with.pendingReports.add(jobId);
    }
    addReport(batch, report, settings.resultBytesMax);
    if (!this.#inFlight.has(key)) this.#writeThisTick(key);
  }

  #writeThisTick(key: string): void {
    if (!this.#tick) {
      this.#tick = new Set();
      atEndOfTick("batch", () => {
        const keys = this.#tick ?? [];
        this.#tick = undefined;
        for (const each of keys) this.#write(each);
      });
    }
    this.#tick.add(key);
  }

  #write(key: string): void {
    const batch = this.#gathered.get(key);
    if (!batch) return;
    this.#gathered.delete(key);
    this.#inFlight.add(key);
    void this.#persist(key, batch);
  }

  async #persist(key: string, batch: ReportBatch): Promise<void> {
    const { clock } = this.#parts;
    let isAgain = false;
    for (let pauseMs = RETRY_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, RETRY_PAUSE_MS_MAX)) {
      try {
        await this.#apply(batch, isAgain);
        break;
      } catch (error) {
        if (!this.#canRetry(batch, error)) break;
        isAgain = true;
        if (batch.end) await this.#keepWaiting(batch).catch(() => {});
        await clock.sleep(pauseMs);
      }
    }
    this.#inFlight.delete(key);
    this.#with.pendingReports.remove(batch.jobId);
    if (this.#gathered.has(key)) this.#writeThisTick(key);
  }

  /** While the store is down, as long as the node is connected. Any other error is a bug. */
  #canRetry({ jobId, attemptId, node }: ReportBatch, error: unknown): boolean {
    const { log, connections } = this.#parts;
    if (isStoreDown(error)) return connections.node(node.nodeId) === node;
    log.error(
      { event: "report.not-applied", jobId, attemptId, error },
      "could not write a report of a node; the node will repeat it",
    );
    return false;
  }

  /** The end of a durable job waits for Postgres: its slot is free meanwhile, and no instance recovers the job. */
  async #keepWaiting({ jobId, attemptId, node: { nodeId } }: ReportBatch): Promise<void> {
    const { hot, tracked } = this.#parts;
    if (!tracked.get(jobId)?.durable) return;
    await Promise.all([
      this.#with.slots.free(nodeId, { jobId, attemptId }),
      rescheduleRecovery(hot, [{ jobId, inMs: 2 * RETRY_PAUSE_MS_MAX }]),
    ]);
  }

  /** `isAgain`: an earlier call failed, and its outcome is unknown. */
  async #apply(batch: ReportBatch, isAgain: boolean): Promise<void> {
    const { jobId, attemptId, node, failure } = batch;
    const at = { attemptId, nodeId: node.nodeId };
    if (hasFailpoints && batch.end) await failpoint("result.before-finished");
    const tracked = this.#parts.tracked.get(jobId);
    let job = isAt(tracked, at) ? tracked : undefined;
    if (failure) job ??= await this.#with.load(jobId);
    // The record of a waiting job names no node, and would let any node fail the attempt.
    const isWaiting = job?.state === "CREATED" && job.attemptId === attemptId;
    if (failure && job && isWaiting && !(await this.#holdsSlot(batch, job)))
      return this.#answer(
        batch,
        batch.kinds.map(() => "unplaced"),
      );
    const ending = failure && (await this.#endOfFailure(job, batch, failure));
    const steps = ending ? [...batch.steps, ending.step] : batch.steps;
    const end = ending?.end ?? batch.end;
    if (end) job ??= await this.#with.load(jobId);
    const inRow = job?.durable ? await this.#writeRow(job, batch, ending?.step, end) : "current";
    if (job && inRow === "stale") {
      this.#parts.tracked.release(job);
      return this.#answer(
        batch,
        steps.map(() => "stale"),
      );
    }
    const row = inRow === "ended" ? await this.#with.durable.recordFromRow(jobId) : undefined;
    const result = row?.result ?? (end && resultText(end));
    const advanced = await this.#advance(batch, steps, result);
    if (hasFailpoints) await failpoint("report.after-written");
    const answers: readonly Answer[] =
      advanced.outcome === "absent" ? steps.map(() => "absent" as const) : advanced.answers;
    if (advanced.outcome === "absent" && job?.durable && end && result !== undefined) {
      // The store lost the record; the row has the end.
      this.#answer(
        batch,
        steps.map(() => "applied"),
      );
      const { outcome } = end;
      const last = { ...at, outcome, result, listeners: [] };
      return void this.#next({ do: "finish", job, end: last });
    }
    this.#answer(batch, answers);
    if (advanced.outcome === "absent") {
      if (job && this.#parts.tracked.release(job)) void this.#next({ do: "report_loss", job });
      return;
    }
    // A duplicate of our own earlier call: no other instance does what follows from it.
    const isEnd = batch.end !== undefined || ending !== undefined;
    // A later attempt may have ended the job meanwhile: its end is not the end of this one.
    const isOurEnd = advanced.jobOutcome !== undefined && advanced.attemptId === attemptId;
    const isOpen = isOurEnd || advanced.state === "CREATED";
    const isOurs = isAgain && answers.at(-1) === "duplicate" && isOpen;
    const isWritten = isEnd && (answers.at(-1) === "applied" || isOurs);
    if (!isWritten) return this.#noteStates(batch, job, answers, { ...advanced, isAgain });
    job ??= await this.#with.load(jobId);
    if (job) this.#endAttempt(job, batch, advanced, { result, inRow });
  }

  /**
   * Writes the row of a durable job first: the end of the job, or the number of its next attempt. `ended`: an earlier report of
   * this attempt has ended it so, and the row has its result. `waiting`: the next attempt waits in the table. `stale`: the row
   * has ended otherwise, or another attempt is current. A node that does not have the attempt changes no row; the record
   * refuses it.
   */
  async #writeRow(
    job: TrackedJob,
    batch: ReportBatch,
    failure: JobStep | undefined,
    end: BatchEnd | undefined,
  ): Promise<InRow> {
    const { jobId, attemptId, node } = batch;
    const isHere = isAt(job, { attemptId, nodeId: node.nodeId });
    // A record that names no node yet: the slot decides.
    const isUnnamed = job.nodeId === undefined && job.attemptId === attemptId;
    if (!isHere && !(isUnnamed && (await this.#holdsSlot(batch, job)))) return "current";
    if (failure?.event === "reassign")
      return raisedAs(await this.#with.outcomes.raise(job, failure));
    if (!end) return "current";
    const { outcome, body, error } = end;
    const ended = await this.#with.durable.end({ jobId, attemptId, outcome, result: body, error });
    if (ended === "duplicate") return "ended";
    return ended === "stale" ? "stale" : "current";
  }

  async #advance(
    batch: ReportBatch,
    steps: readonly JobStep[],
    result: string | undefined,
  ): Promise<Advanced | { outcome: "absent" }> {
    const { jobId, attemptId, node } = batch;
    const { hot, instanceId } = this.#parts;
    const call = { jobId, attemptId, nodeId: node.nodeId, instanceId, steps, result };
    const tracked = this.#parts.tracked.get(jobId);
    const end = isAt(tracked, call) ? this.#with.outcomes.startEnd(tracked, call) : undefined;
    batch.written = end?.written;
    if (hasFailpoints && end) await failpoint("result.after-sent");
    const advanced = await (end?.answer ?? advance(hot, call));
    if (advanced.outcome === "absent" || !advanced.answers.includes("unplaced")) return advanced;
    // The result overtook `dispatched`, or that was lost.
    const job = await this.#with.load(jobId);
    if (!job || !(await this.#holdsSlot(batch, job))) return advanced;
    return advance(hot, { ...call, steps: steps.map(asReserved) });
  }

  /** Whether this node has the attempt of a job whose record names no node: it serves the tenant, and has the slot. */
  async #holdsSlot(
    { jobId, attemptId, node }: ReportBatch,
    { tenant }: TrackedJob,
  ): Promise<boolean> {
    if (!serves(node.snapshot?.tenants, tenant)) return false;
    return hasSlot(this.#parts.hot, node.nodeId, { jobId, attemptId });
  }

  #answer(batch: ReportBatch, answers: readonly Answer[]): void {
    for (const [index, kind] of batch.kinds.entries())
      this.#parts.metrics.reported(kind, answers[index] ?? "absent");
    answerNode(batch, answers);
  }

  async #endOfFailure(
    job: TrackedJob | undefined,
    { node, attemptId }: ReportBatch,
    { reason, error }: NonNullable<ReportBatch["failure"]>,
  ) {
    const detail = `${error.code}: ${error.message}`;
    if (!isAt(job, { attemptId, nodeId: node.nodeId })) {
      // The node does not have the attempt any more: the record refuses this step.
      const step = { event: "reassign", reason: detail, counts: true, avoid: true } as const;
      return { step, end: undefined };
    }
    if (reason === "node_draining") this.#parts.nodePool.leaving(node.nodeId, true);
    const service = error.service ?? job.service;
    if (reason === "model_not_available" && service)
      await this.#with.storm.unavailable(node.nodeId, service);
    const step = await this.#with.outcomes.afterFailure(job, reason, detail);
    if (step.event === "reassign") return { step, end: undefined };
    const { event, outcome, error: last } = step;
    return { step: { event, outcome, reason: detail }, end: { outcome, error: last } };
  }

  /** The last step ended the attempt, and was applied. */
  #endAttempt(
    job: TrackedJob,
    batch: ReportBatch,
    advanced: Advanced,
    { result = "{}", inRow }: { result: string | undefined; inRow: InRow },
  ): void {
    if (advanced.state === "CREATED" && batch.failure) {
      const raised = inRow === "waiting" ? "waiting" : "raised";
      const { reason } = batch.failure;
      this.#with.outcomes.beginAttempt(job, advanced, { reason, raised });
    }
    const { jobOutcome: outcome, attemptId, listeners } = advanced;
    if (!outcome) return;
    const { written } = batch;
    const { nodeId } = batch.node;
    const end = { outcome, attemptId, nodeId, result, listeners };
    void this.#next({ do: "finish", job, end, written });
  }

  /** The attempt continues: notifies the session, and sets the deadline of the state. */
  #noteStates(
    { attemptId, kinds, progress }: ReportBatch,
    job: TrackedJob | undefined,
    answers: readonly Answer[],
    { state, isAgain }: { state: Advanced["state"]; isAgain: boolean },
  ): void {
    const { tracked, notifier } = this.#parts;
    if (!job || job.attemptId !== attemptId) return;
    if (state === "FINISHED" || state === "RELEASED") {
      // Another instance has ended the job, and concludes it.
      tracked.release(job);
      return;
    }
    job.state = state;
    if (state === "ACCEPTED" || state === "RUNNING")
      tracked.setDeadline(job, "state", job.runTimeoutMs);
    for (const [index, kind] of kinds.entries()) {
      // A duplicate of an earlier call of ours: the session was not notified after it.
      const isNew = answers[index] === "applied" || (isAgain && answers[index] === "duplicate");
      if (isNew) notifier.update(job, kind === "ack" ? "ACCEPTED" : "RUNNING");
    }
    if (answers.at(-1) === "applied" || answers.at(-1) === "duplicate")
      for (const body of progress) this.#sendProgress(job, body);
  }

  #sendProgress({ jobId, attemptId, sessionId }: TrackedJob, body: string): void {
    if (sessionId) this.#parts.notifier.send(sessionId, progressFrame({ jobId, attemptId, body }));
  }
}

const raisedAs = (raised: Raised): InRow =>
  raised === "over" ? "stale" : raised === "waiting" ? "waiting" : "current";

const asReserved = (step: JobStep): JobStep =>
  step.event === "result" ? { ...step, reserved: true } : step;

const GOES_ON: ReadonlySet<string> = new Set(["applied", "duplicate"]);

/** Answers every result, and other reports only if they were refused. */
function answerNode(
  { node, jobId, attemptId, kinds }: ReportBatch,
  answers: readonly string[],
): void {
  const about = { job_id: jobId, attempt_id: attemptId };
  const isRefused = kinds.some((kind, at) => kind !== "result" && !GOES_ON.has(answers[at] ?? ""));
  if (kinds.at(-1) === "result") {
    const answer = answers.at(-1);
    const outcome = answer === "applied" || answer === "duplicate" ? answer : "stale";
    if (node.link.acks) node.link.acks.add({ ...about, outcome });
    else node.link.send({ type: "job_result_ack", ...about, outcome });
  } else if (isRefused) {
    node.link.send(toErrorMessage(new TenureError("STALE_ATTEMPT", about), { job_id: jobId }));
  }
}
