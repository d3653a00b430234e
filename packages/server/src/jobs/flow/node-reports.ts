import { type NodeJobError, TenureError, toErrorMessage } from "@tenure/protocol";
import { failpoint } from "#failpoint";
import { atEndOfTick } from "../../kernel/tick.ts";
import { progressFrame, resultText, updateFrame } from "../api/frames.ts";
import type { NodeMessage, ResultReport } from "../api/raw-json.ts";
import { isStoreDown, type JobsContext } from "../context.ts";
import type { NodeEnd } from "../memory/connections.ts";
import { isAt, type LiveJob } from "../memory/tracked-jobs.ts";
import type { JobMeter, RetryReason } from "../meter.ts";
import type { JobStep, StepAnswer } from "../policy/job-table.ts";
import { holdsSlot } from "../store/slot-store.ts";
import { type Advanced, advance } from "../store/transition-store.ts";
import type { Endings } from "./attempt-outcomes.ts";

export type NodeReport = Extract<
  NodeMessage,
  { type: "job_ack" | "job_started" | "job_progress" | "job_result" }
>;

/** What nodes say of their jobs. */
export interface Reports {
  hear(node: NodeEnd, report: NodeReport): void;
  /** Whether something was said of this job that is not in its record yet. */
  isReported(jobId: string): boolean;
}

export interface ReportsStory {
  endings: Endings;
  /** The job's record, for a job that is not in hand. */
  load(jobId: string): Promise<LiveJob | undefined>;
  /** A node said that it cannot serve a service. Resolves when it is marked, for every instance. */
  unavailable(nodeId: string, service: string): Promise<void>;
  /** The record is gone: its store was emptied. */
  vanished(job: LiveJob): void;
}

type Kind = Parameters<JobMeter["reported"]>[0];

/** What one node said of one attempt in one turn of the loop, or while the store was busy with what it said before. */
interface Batch {
  node: NodeEnd;
  jobId: string;
  attemptId: number;
  kinds: Kind[];
  steps: JobStep[];
  /** The newest bodies, as JSON; older ones are dropped while the store is away. */
  progress: string[];
  progressLength: number;
  /** As `resultText` made it. */
  result: string | undefined;
  failure: { reason: RetryReason; error: NodeJobError } | undefined;
}

const RETRY_PAUSE_MS = 200;
const RETRY_PAUSE_MS_MAX = 2_000;
/** Progress of one attempt that is kept until the store answers. */
const PROGRESS_MAX = 64;
const PROGRESS_LENGTH_MAX = 262_144;

/**
 * Everything a node said of one attempt within one turn is written together: an acknowledgement, a start and a result
 * of a short job are one call. What is said of a job while a call about it is under way waits for that, so that
 * nothing overtakes.
 *
 * While the store is away nothing is lost: it is tried again as long as the node is connected, and a node that
 * connects anew says again what was not acknowledged.
 */
export function createReports(context: JobsContext, story: ReportsStory): Reports {
  const { hot, instanceId, clock, log, book, links, deadlines, meter, settings } = context;
  /** By job, attempt and node. A batch is here until its call is sent. */
  const gathered = new Map<string, Batch>();
  const underWay = new Map<string, number>();
  const reported = new Map<string, number>();
  let turn: Set<string> | undefined;

  function hear(node: NodeEnd, report: NodeReport): void {
    const { job_id: jobId, attempt_id: attemptId } = report;
    if (report.type === "job_progress" && isLarger(report.body.text, settings.resultBytesMax))
      return void node.link.send(toErrorMessage(tooLarge(settings), { job_id: jobId }));
    const job = book.get(jobId);
    if (report.type === "job_progress" && isAt(job, { attemptId, nodeId: node.nodeId })) {
      if (job.state === "RUNNING") {
        tellProgress(job, report.body.text);
        return;
      }
    }
    const key = `${jobId}:${attemptId}:${node.nodeId}`;
    const batch = gathered.get(key) ?? openBatch(node, report);
    if (!gathered.has(key)) {
      gathered.set(key, batch);
      count(reported, jobId, 1);
    }
    include(batch, report);
    if (!underWay.has(key)) inThisTurn(key);
  }

  function inThisTurn(key: string): void {
    if (!turn) {
      turn = new Set();
      atEndOfTick("batch", () => {
        const keys = turn ?? [];
        turn = undefined;
        for (const each of keys) void write(each);
      });
    }
    turn.add(key);
  }

  async function write(key: string): Promise<void> {
    const batch = gathered.get(key);
    if (!batch) return;
    gathered.delete(key);
    underWay.set(key, 1);
    await persist(batch).finally(() => {
      underWay.delete(key);
      count(reported, batch.jobId, -1);
    });
    if (gathered.has(key)) inThisTurn(key);
  }

  async function persist(batch: Batch): Promise<void> {
    let isAgain = false;
    for (let pauseMs = RETRY_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, RETRY_PAUSE_MS_MAX)) {
      try {
        return await settle(batch, isAgain);
      } catch (error) {
        isAgain = true;
        const { jobId, attemptId } = batch;
        if (!isStoreDown(error)) {
          log.error(
            { event: "report.not-applied", jobId, attemptId, error },
            "the node will say it again",
          );
          return;
        }
        if (links.node(batch.node.nodeId) !== batch.node) return;
        await clock.sleep(pauseMs);
      }
    }
  }

  /** `isAgain`: it was tried before, and nobody knows what became of that. */
  async function settle(batch: Batch, isAgain: boolean): Promise<void> {
    const { jobId, attemptId, node, failure } = batch;
    const at = { attemptId, nodeId: node.nodeId };
    if (batch.result !== undefined) await failpoint("result.before-finished");
    const live = book.get(jobId);
    let job = isAt(live, at) ? live : undefined;
    if (failure) job ??= await story.load(jobId);
    const ending = failure && (await endOfFailure(job, batch, failure));
    const steps = ending ? [...batch.steps, ending.step] : batch.steps;
    const result = ending ? ending.result : batch.result;
    let answered = await advance(hot, { jobId, ...at, instanceId, steps, result });
    if (answered.outcome === "answered" && answered.answers.includes("unplaced")) {
      // It overtook `dispatched`, or that was lost. The slot tells whether this node was meant.
      if (await holdsSlot(hot, node.nodeId, { jobId, attemptId }))
        answered = await advance(hot, {
          jobId,
          ...at,
          instanceId,
          steps: steps.map(asReserved),
          result,
        });
    }
    const answers: readonly (StepAnswer | "absent")[] =
      answered.outcome === "absent" ? steps.map(() => "absent" as const) : answered.answers;
    for (const [index, kind] of batch.kinds.entries())
      meter.reported(kind, answers[index] ?? "absent");
    answerNode(batch, answers);
    if (answered.outcome === "absent") {
      if (job) lost(job);
      return;
    }
    // A duplicate of what was tried before is our own: nobody else does what follows from it.
    const isEnd = batch.result !== undefined || ending !== undefined;
    const isOpen = answered.jobOutcome !== undefined || answered.state === "CREATED";
    const isOurs = isAgain && answers.at(-1) === "duplicate" && isOpen;
    const isWritten = isEnd && (answers.at(-1) === "applied" || isOurs);
    if (!isWritten) return noteStates(batch, job, answers, answered.state);
    job ??= await story.load(jobId);
    if (job) conclude(job, batch, answered, result);
  }

  /** Gone with the store's memory. The client hears of it at once, and not when it wonders. */
  function lost(job: LiveJob): void {
    if (!book.drop(job)) return;
    deadlines.clear(job.jobId);
    story.vanished(job);
  }

  async function endOfFailure(
    job: LiveJob | undefined,
    { node, attemptId }: Batch,
    { reason, error }: NonNullable<Batch["failure"]>,
  ) {
    const words = `${error.code}: ${error.message}`;
    if (!isAt(job, { attemptId, nodeId: node.nodeId })) {
      // Not its any more: whatever this says, the record refuses it.
      const step = { event: "reassign", reason: words, counts: true, avoid: true } as const;
      return { step, result: undefined };
    }
    if (reason === "node_draining") context.roster.leaving(node.nodeId, true);
    const service = error.service ?? job.service;
    if (reason === "model_not_available" && service) await story.unavailable(node.nodeId, service);
    const step = await story.endings.afterFailure(job, reason, words);
    if (step.event === "reassign") return { step, result: undefined };
    const { event, outcome } = step;
    return { step: { event, outcome, reason: words }, result: resultText({ error: step.error }) };
  }

  /** The last step was the end of the attempt, and it was applied. */
  function conclude(job: LiveJob, batch: Batch, answered: Advanced, result = "{}"): void {
    if (answered.state === "CREATED" && batch.failure)
      story.endings.beginAnew(job, answered, batch.failure.reason);
    if (!answered.jobOutcome) return;
    story.endings.finished(job, {
      outcome: answered.jobOutcome,
      attemptId: answered.attemptId,
      nodeId: batch.node.nodeId,
      result,
      listeners: answered.listeners,
    });
  }

  /** It goes on: what the session sees, and how long the next step may take. */
  function noteStates(
    { jobId, attemptId, kinds, progress }: Batch,
    job: LiveJob | undefined,
    answers: readonly string[],
    state: Advanced["state"],
  ): void {
    if (!job || job.attemptId !== attemptId) return;
    const { nodeId, sessionId } = job;
    if (state === "FINISHED" || state === "RELEASED") {
      // Somebody else has ended it, and does the rest.
      if (book.drop(job)) deadlines.clear(jobId);
      return;
    }
    job.state = state;
    if (state === "ACCEPTED" || state === "RUNNING") deadlines.set(jobId, job.timeoutMs);
    for (const [index, kind] of kinds.entries()) {
      if (answers[index] !== "applied" || !sessionId) continue;
      const reached = kind === "ack" ? "ACCEPTED" : "RUNNING";
      context.telling.tell(sessionId, updateFrame({ jobId, state: reached, attemptId, nodeId }));
    }
    if (answers.at(-1) === "applied" || answers.at(-1) === "duplicate")
      for (const body of progress) tellProgress(job, body);
  }

  function tellProgress({ jobId, attemptId, sessionId }: LiveJob, body: string): void {
    if (sessionId) context.telling.tell(sessionId, progressFrame({ jobId, attemptId, body }));
  }

  /** Nothing counts that is said of an attempt after its end, in the same breath: the end is the last step. */
  function include(batch: Batch, report: NodeReport): void {
    if (batch.result !== undefined || batch.failure) return;
    switch (report.type) {
      case "job_ack":
        add(batch, "ack", { event: "ack" });
        break;
      case "job_started":
        add(batch, "started", { event: "started" });
        break;
      case "job_progress":
        includeProgress(batch, report.body.text);
        break;
      case "job_result":
        includeResult(batch, report);
    }
  }

  /** Any number of them is one step of the record. */
  function includeProgress(batch: Batch, body: string): void {
    const { progress } = batch;
    progress.push(body);
    batch.progressLength += body.length;
    const isTooMuch = () =>
      progress.length > PROGRESS_MAX || batch.progressLength > PROGRESS_LENGTH_MAX;
    while (progress.length > 1 && isTooMuch()) batch.progressLength -= progress.shift()!.length;
    if (!batch.kinds.includes("progress")) add(batch, "progress", { event: "started" });
  }

  function includeResult(batch: Batch, report: ResultReport): void {
    const error = errorOf(report);
    const reason = error && retryReasonOf(error);
    if (error && reason) {
      batch.kinds.push("result");
      batch.failure = { reason, error };
      return;
    }
    const { outcome, ...end } = endOf(report, error, settings.resultBytesMax);
    batch.result = resultText(end);
    add(batch, "result", { event: "result", outcome, reason: end.error?.code });
  }

  return { hear, isReported: (jobId) => reported.has(jobId) };
}

const openBatch = (node: NodeEnd, report: NodeReport): Batch => ({
  node,
  jobId: report.job_id,
  attemptId: report.attempt_id,
  kinds: [],
  steps: [],
  progress: [],
  progressLength: 0,
  result: undefined,
  failure: undefined,
});

function add(batch: Batch, kind: Kind, step: JobStep): void {
  batch.kinds.push(kind);
  batch.steps.push(step);
}

const asReserved = (step: JobStep): JobStep =>
  step.event === "result" ? { ...step, reserved: true } : step;

const GONE_ON: ReadonlySet<string> = new Set(["applied", "duplicate"]);

/** The sender is told what became of what it said; of an acknowledgement only when it came to nothing. */
function answerNode({ node, jobId, attemptId, kinds }: Batch, answers: readonly string[]): void {
  const about = { job_id: jobId, attempt_id: attemptId };
  const isRefused = kinds.some((kind, at) => kind !== "result" && !GONE_ON.has(answers[at] ?? ""));
  if (kinds.at(-1) === "result") {
    const answer = answers.at(-1);
    const outcome = answer === "applied" || answer === "duplicate" ? answer : "stale";
    node.link.send({ type: "job_result_ack", ...about, outcome });
  } else if (isRefused) {
    node.link.send(toErrorMessage(new TenureError("STALE_ATTEMPT", about), { job_id: jobId }));
  }
}

const errorOf = ({ success, error }: ResultReport): NodeJobError | undefined =>
  success ? undefined : (error ?? { code: "FAILED", message: "the node gave no reason" });

/** Whether another node may do better, by the node's word. */
function retryReasonOf({ code, retryable }: NodeJobError): RetryReason | undefined {
  if (code === "MODEL_NOT_AVAILABLE") return "model_not_available";
  if (code === "NODE_DRAINING") return "node_draining";
  return retryable ? "failed" : undefined;
}

function endOf(report: ResultReport, error: NodeJobError | undefined, bytesMax: number) {
  const body = report.body?.text;
  if (body !== undefined && isLarger(body, bytesMax)) {
    const { code, message } = tooLarge({ resultBytesMax: bytesMax });
    const words = { code, message: `the result is ${message}` };
    return { outcome: "failed", error: words, body: undefined } as const;
  }
  return { outcome: error ? "failed" : "succeeded", error, body } as const;
}

const isLarger = (text: string, bytesMax: number): boolean =>
  text.length * 3 > bytesMax && Buffer.byteLength(text) > bytesMax;

const tooLarge = ({ resultBytesMax }: { resultBytesMax: number }): TenureError =>
  new TenureError("PAYLOAD_TOO_LARGE", { limit_bytes: resultBytesMax });

function count(counts: Map<string, number>, key: string, change: 1 | -1): void {
  const now = (counts.get(key) ?? 0) + change;
  if (now <= 0) counts.delete(key);
  else counts.set(key, now);
}
