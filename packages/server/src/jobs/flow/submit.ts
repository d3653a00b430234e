import { hash } from "node:crypto";
import { compactJson, type JsonText, TenureError } from "@tenure/protocol";
import { failpoint, hasFailpoints } from "#failpoint";
import { gatherPerTick } from "../../kernel/batch.ts";
import { createLimit } from "../../kernel/limit.ts";
import { uuid7 } from "../../kernel/random.ts";
import { type Condition, Gathered } from "../../store/call.ts";
import { type JobRecord, newTrackedJob, type TrackedJob } from "../job.ts";
import type { JobsParts } from "../parts.ts";
import { RECOVER_AFTER_MS } from "../policy/recovery-policy.ts";
import { bindingTtlMs, retryPausesOf } from "../policy/retry-policy.ts";
import type { DurableJobs } from "../rows/durable-jobs.ts";
import { NO_LIMIT_MS } from "../rows/row-codec.ts";
import type { WholeRow } from "../rows/row-store.ts";
import {
  type BindingCandidate,
  type Bound,
  isBound,
  readBinding,
  startBind,
} from "../store/binding-store.ts";
import {
  type Created,
  dropJob,
  isCreated,
  type NewJob,
  readJob,
  startCreate,
} from "../store/job-store.ts";
import { addRecent, type NewRecentJob } from "../store/recent-store.ts";
import {
  enterRecoveryIndex,
  leaveRecoveryIndex,
  type RecoveryEntry,
} from "../store/recovery-index-store.ts";
import { decideRequest, TRIES_MAX, undecided } from "../store/request-decision.ts";
import type { Turns } from "../turns/turns.ts";
import type { Placement } from "./placement.ts";
import type { Next, PendingSlot } from "./step.ts";
import type { Submission, SubmitAdmission } from "./submit-admission.ts";

/** `duplicate`: the request already has a job, and this is its record. */
export type Submitted =
  | { outcome: "accepted"; job: TrackedJob; reserved?: PendingSlot | undefined }
  /** It waits in the table until it is due. */
  | { outcome: "scheduled"; record: JobRecord }
  | { outcome: "duplicate"; record: JobRecord };

/** By then the job has joined its turn, on its instance or recovered by another. After that the client has to retry. */
const JOIN_LIMIT_MS = 2 * RECOVER_AFTER_MS;
const JOIN_POLL_MS = 20;
const ORPHANS_MAX = 10_000;
/** How often the list of recent jobs is cut to its bound; between two cuts it holds the jobs of that time on top. */
const TRIM_INTERVAL_MS = 1_000;
/** Submits that are written at once. More of them are not faster, and results would wait behind them. */
const WRITING_MAX = 256;

interface Collaborators {
  placement: Pick<Placement, "reserveAhead">;
  turns: Pick<Turns, "join" | "inLine">;
  admission: SubmitAdmission;
  durable: Pick<DurableJobs, "accept" | "compare" | "recordFromRow" | "recordOf">;
}

type Parts = Pick<
  JobsParts,
  | "hot"
  | "rows"
  | "instanceId"
  | "clock"
  | "random"
  | "settings"
  | "tracked"
  | "metrics"
  | "tracing"
>;

/** Accepts jobs: record, recovery index, binding of the request, then the first placement. */
export class Submit {
  readonly #parts: Parts;
  readonly #with: Collaborators;
  readonly #next: Next;
  readonly #limitWrites = createLimit(WRITING_MAX);
  /** Jobs written by a submit whose outcome this instance does not know. */
  readonly #orphans = new Set<string>();
  readonly #enterIndex;
  readonly #list;

  constructor(parts: Parts, collaborators: Collaborators, next: Next) {
    this.#parts = parts;
    this.#with = collaborators;
    this.#next = next;
    const { hot, settings, clock } = parts;
    this.#enterIndex = gatherPerTick<RecoveryEntry>((_, entries) =>
      enterRecoveryIndex(hot, entries),
    );
    let trimmedMs = Number.NEGATIVE_INFINITY;
    this.#list = gatherPerTick<NewRecentJob>((_, jobs) => {
      const nowMs = clock.monotonicMs();
      const trims = nowMs - trimmedMs >= TRIM_INTERVAL_MS;
      if (trims) trimmedMs = nowMs;
      return addRecent(hot, jobs, { keepMs: settings.retentionMs, trims });
    });
  }

  /**
   * Calls `accept` once it is certain which job the request has, before any other message about the job. Throws the errors
   * that the caller gets: `REQUEST_ID_REUSED`, `QUEUE_FULL`, `RATE_LIMITED`, `PAYLOAD_TOO_LARGE`, `DEPENDENCY_DOWN`.
   */
  submit(submission: Submission, accept: (submitted: Submitted) => void): Promise<void> {
    return this.#with.admission.admit(submission, () => this.#acceptJob(submission, accept));
  }

  async #acceptJob(submission: Submission, accept: (submitted: Submitted) => void): Promise<void> {
    const { turn, sessionId, finalize } = submission;
    const submitted =
      turn && sessionId
        ? await this.#with.turns.inLine(sessionId, finalize ? "closes" : "joins", (inOrder) =>
            this.#begin(submission, inOrder),
          )
        : await this.#begin(submission);
    const { outcome } = submitted;
    this.#parts.metrics.submitted(outcome === "scheduled" ? "accepted" : outcome);
    accept(submitted);
    if (submitted.outcome !== "accepted") return;
    const { job, reserved } = submitted;
    // A job that was cancelled before it joined its turn has ended, and needs no node.
    if (this.#parts.tracked.has(job)) void this.#next({ do: "place", job, reserved });
    else reserved?.giveBack();
  }

  async #begin(submission: Submission, inOrder?: () => Promise<void>): Promise<Submitted> {
    const { clock, hot, settings } = this.#parts;
    const known = submission.again && (await this.#limitWrites(() => this.#find(submission)));
    if (known) return this.#duplicateOf(submission, known);
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const spec = this.#specOf(submission);
      const { jobId } = spec;
      // The row, then the binding: the job has to win both.
      const { run_at, delay_ms } = submission;
      const dueAt = run_at === undefined ? undefined : new Date(run_at);
      const isTimed = dueAt !== undefined || delay_ms !== undefined;
      const timed = isTimed ? { runAt: dueAt, runInMs: delay_ms ?? 0 } : undefined;
      const former = spec.durable ? await this.#with.durable.accept(spec, timed) : undefined;
      const rival = former && (await this.#decideRow(spec, former));
      if (rival) return this.#duplicateOf(submission, rival);
      if (former) continue;
      if (timed) {
        const record = await this.#with.durable.recordFromRow(jobId);
        if (record) return { outcome: "scheduled", record };
      }
      const { tenant, requestId, bodyHash } = spec;
      const ttlMs = bindingTtlMs(spec, settings);
      const candidate = { tenant, requestId, jobId, bodyHash, ttlMs };
      const reserveAhead = inOrder === undefined;
      const { answer, bound, reserved } = await this.#limitWrites(() =>
        this.#write(spec, { candidate, reserveAhead }),
      );
      if (hasFailpoints) await failpoint("submit.after-binding");
      if (answer.outcome === "void" || bound.outcome !== "bound") reserved?.giveBack();
      // Another submit saw the binding before the record, and bound the request to its own job.
      if (answer.outcome === "void") {
        if (spec.durable) await this.#parts.rows.undo({ jobId, attemptId: 1 });
        continue;
      }
      const winner = await decideRequest(hot, candidate, bound);
      if (winner === "ours") {
        const createdMs = answer.outcome === "created" ? answer.createdMs : clock.wallMs();
        const job = this.#track(spec, createdMs);
        if (bound.outcome !== "bound") this.#list("", { jobId, tenant }).catch(() => {});
        await inOrder?.();
        if (inOrder) await this.#with.turns.join(job);
        return {
          outcome: "accepted",
          job,
          reserved: bound.outcome === "bound" ? reserved : undefined,
        };
      }
      await Promise.all([dropJob(hot, jobId), leaveRecoveryIndex(hot, [jobId])]);
      if (spec.durable) await this.#parts.rows.undo({ jobId, attemptId: 1 });
      return this.#duplicateOf(submission, winner);
    }
    throw undecided(submission.request_id);
  }

  /** The job of a request that was sent before. `undefined` decides nothing: the submit continues as a new one. */
  async #find(submission: Submission): Promise<"reused" | JobRecord | undefined> {
    const { hot } = this.#parts;
    const { tenant, request_id: requestId } = submission;
    const binding = await readBinding(hot, { tenant, requestId });
    const record = binding && (await readJob(hot, binding.jobId, { result: true }));
    return record && binding.bodyHash !== bodyHash(submission) ? "reused" : record;
  }

  async #duplicateOf({ request_id }: Submission, winner: "reused" | JobRecord): Promise<Submitted> {
    if (winner === "reused") throw new TenureError("REQUEST_ID_REUSED", { request_id });
    const { jobId, state } = winner;
    // Its instance may have died before the job was in the index: from now on it is recovered.
    const isOrphan = this.#orphans.delete(jobId);
    if (state === "CREATED" || (isOrphan && state === "DISPATCHED"))
      await this.#enterIndex("", { jobId, inMs: isOrphan ? 0 : RECOVER_AFTER_MS });
    return { outcome: "duplicate", record: await this.#inItsTurn(winner) };
  }

  /** One pipeline. Any instance can continue after each of the steps. */
  async #write(
    spec: NewJob,
    { candidate, reserveAhead }: { candidate: BindingCandidate; reserveAhead: boolean },
  ): Promise<{ answer: Created; bound: Bound; reserved: PendingSlot | undefined }> {
    const { hot } = this.#parts;
    const { jobId, tenant, pool, service, priority } = spec;
    // Record, entry, binding and slot: if all of them are written, DISPATCHED is too.
    const written = new Gathered(4);
    const created = startCreate(hot, spec);
    written.add(isCreated(created));
    if (hasFailpoints) await failpoint("submit.after-record");
    const onStarted = (entry: Condition) => written.add(entry);
    const entered = this.#enterIndex("", { jobId, inMs: RECOVER_AFTER_MS, onStarted });
    if (hasFailpoints) await failpoint("submit.after-due");
    const binding = startBind(hot, candidate);
    const isOurs = isBound(binding);
    written.add(isOurs);
    // With the binding: if this instance ends now, the job may run and end without being recovered, and no list would show it.
    this.#list("", { jobId, tenant, onlyIf: isOurs }).catch(() => {});
    // After them in the same pipeline, assuming that the request is new, as most are.
    const newcomer = { jobId, attemptId: 1, tenant, pool, service, priority, createdMs: Infinity };
    const reserved = reserveAhead
      ? this.#with.placement.reserveAhead(newcomer, written)
      : undefined;
    try {
      const [answer, , bound] = await Promise.all([created.answer, entered, binding.answer]);
      return { answer, bound, reserved };
    } catch (error) {
      reserved?.giveBack();
      // If it was written after all, no instance tracks it. A repeated submit recovers it at once.
      if (this.#orphans.size >= ORPHANS_MAX) this.#orphans.clear();
      this.#orphans.add(jobId);
      throw error;
    }
  }

  /**
   * Decides which job the request of another submit's row has. That submit may not have won the binding yet: this one decides it
   * for both. `undefined`: the row is gone, because its job lost the request.
   */
  async #decideRow(spec: NewJob, row: WholeRow): Promise<"reused" | JobRecord | undefined> {
    const { hot, rows, settings } = this.#parts;
    const { durable } = this.#with;
    const { tenant, requestId, bodyHash } = spec;
    const { jobId, state } = row;
    if (row.bodyHash !== bodyHash) return "reused";
    const record = await readJob(hot, jobId, { result: true });
    if (state !== "open") return record?.outcome ? record : durable.recordOf(row);
    if (!record) {
      // Lost, or about to be written: then the job begins with the second attempt.
      await durable.compare([row]);
      const now = await rows.read(jobId);
      return now && durable.recordOf(now);
    }
    const ttlMs = bindingTtlMs(spec, settings);
    const candidate = { tenant, requestId, jobId, bodyHash, ttlMs };
    const winner = await decideRequest(hot, candidate);
    return winner === "ours" ? record : winner;
  }

  /**
   * A job of a turn is accepted once it has joined its turn, also for a duplicate submit: a client whose jobs are all accepted
   * may end the turn, and a job that joined after that would open another.
   */
  async #inItsTurn(record: JobRecord): Promise<JobRecord> {
    const { clock, hot } = this.#parts;
    const untilMs = clock.monotonicMs() + JOIN_LIMIT_MS;
    let now = record;
    while (now.turn && now.sessionId && !now.turnId && now.state === "CREATED") {
      if (clock.monotonicMs() > untilMs)
        throw new TenureError("DEPENDENCY_DOWN", {
          dependency: "the instance that handles this request",
        });
      await clock.sleep(JOIN_POLL_MS);
      now = (await readJob(hot, now.jobId, { result: true })) ?? now;
    }
    return now;
  }

  #track(spec: NewJob, createdMs: number): TrackedJob {
    const { clock, tracing, tracked } = this.#parts;
    const { payload } = spec;
    const job = newTrackedJob(spec, { payload, createdMs, nowMs: clock.monotonicMs() });
    tracing.jobBegun(job);
    tracked.track(job);
    return job;
  }

  #specOf(submission: Submission): NewJob {
    const { random, clock, settings, instanceId } = this.#parts;
    const { pool, service, priority = 0, timeout_ms, pending_ms } = submission;
    const turn = (submission.turn ?? false) && submission.sessionId !== undefined;
    const isTimed = submission.run_at !== undefined || submission.delay_ms !== undefined;
    const isDefault = isTimed || (settings.durableByDefault && submission.sessionId === undefined);
    const durable = submission.durable ?? isDefault;
    return {
      jobId: uuid7(random, clock.wallMs()),
      tenant: submission.tenant,
      token: submission.token,
      requestId: submission.request_id,
      bodyHash: bodyHash(submission),
      pool,
      service,
      priority,
      traceId: submission.trace_id,
      sessionId: submission.sessionId,
      turn,
      finalize: turn ? submission.finalize : undefined,
      originInstanceId: instanceId,
      pendingTimeoutMs: pending_ms ?? (durable ? NO_LIMIT_MS : settings.pendingTimeoutMs),
      ackTimeoutMs: settings.ackTimeoutMs,
      runTimeoutMs: timeout_ms ?? settings.runTimeoutMs,
      attemptsMax: submission.retry?.attempts ?? settings.attemptsMax,
      retry: retryPausesOf(submission.retry),
      durable,
      payload: submission.payload.text,
    };
  }
}

/**
 * The hash of everything the client asked for. Without the trace id, and without `pending_ms`, which an instance of 0.1.0 does
 * not know: the same request repeated there would look different. White space between the tokens of the payload does not
 * count. For text that `JSON.stringify` wrote it equals the hash of 0.1.0, which parsed the payload and wrote it again. Newer
 * fields count only if they are given.
 */
function bodyHash(submission: Submission): string {
  const { pool, service, priority, timeout_ms, payload } = submission;
  const { durable, run_at, delay_ms, retry } = submission;
  const known = [pool, service ?? null, priority ?? 0, timeout_ms ?? null];
  const newer = JSON.stringify({ durable, run_at, delay_ms, retry });
  const words = JSON.stringify(newer === "{}" ? known : [...known, newer]);
  return hash("sha256", words + compactText(payload), "base64url");
}

const compactText = ({ text, isCompact }: JsonText): string =>
  isCompact ? text : compactJson(text);
