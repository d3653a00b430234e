import { type JobError, memberText } from "@tenure/protocol";
import { failpoint } from "#failpoint";
import { type JobAttempt, type JobRecord, type TrackedJob, trackedJobOf } from "../job.ts";
import type { JobsParts } from "../parts.ts";
import { RECOVER_AFTER_MS } from "../policy/recovery-policy.ts";
import { bindingTtlMs } from "../policy/retry-policy.ts";
import { bind } from "../store/binding-store.ts";
import { dropJob, type NewJob, persistJob, readAttempts, readJob } from "../store/job-store.ts";
import { addRecent } from "../store/recent-store.ts";
import { enterRecoveryIndex } from "../store/recovery-index-store.ts";
import { putJob } from "../store/refill-store.ts";
import { decideRequest, undecided } from "../store/request-decision.ts";
import { jobOfRow, type RowDefaults, recordOfRow, specOfJob } from "./row-codec.ts";
import type { End, Ended, Raised, Refill, RowWithPayload, WholeRow } from "./row-store.ts";

type Parts = Pick<JobsParts, "hot" | "rows" | "settings" | "instanceId" | "log" | "clock">;

/** The rows of durable jobs beside their records. The row is written first, and decides. */
export class DurableJobs {
  readonly #parts: Parts;
  readonly #defaults: RowDefaults;

  constructor(parts: Parts) {
    this.#parts = parts;
    const { ackTimeoutMs, runTimeoutMs, attemptsMax } = parts.settings;
    this.#defaults = { instanceId: parts.instanceId, ackTimeoutMs, runTimeoutMs, attemptsMax };
  }

  /** Commits the row of a new job. Returns the row that the request has already, if another submit was first. */
  async accept(
    job: NewJob,
    timed?: { runAt: Date | undefined; runInMs: number },
  ): Promise<WholeRow | undefined> {
    const { rows } = this.#parts;
    const { jobId, tenant, requestId, bodyHash, pool, priority, payload } = job;
    const spec = specOfJob(job);
    const row = { jobId, tenant, requestId, bodyHash, pool, priority, payload, spec };
    for (let tries = 0; tries < 3; tries++) {
      const when = timed
        ? ({ state: "scheduled", ...timed } as const)
        : ({ state: "open", runInMs: 0 } as const);
      if ((await rows.insert({ ...row, ...when })) === "inserted") {
        await failpoint("submit.after-row");
        return undefined;
      }
      const former = await rows.ofRequest({ tenant, requestId });
      if (former) return former;
      // The other submit has undone its row meanwhile.
    }
    throw undecided(requestId);
  }

  /** The record of a row: the hot store's, or one made from the row. */
  async recordOf(row: WholeRow): Promise<JobRecord> {
    const record = await readJob(this.#parts.hot, row.jobId, { result: true });
    const isBehind = row.state === "ended" && record?.outcome === undefined;
    return record && !isBehind ? record : recordOfRow(row, this.#defaults);
  }

  /** The record of a job that the hot store does not have. `undefined`: the job is not durable, or history is over. */
  async recordFromRow(jobId: string): Promise<JobRecord | undefined> {
    const row = await this.#parts.rows.read(jobId);
    return row && recordOfRow(row, this.#defaults);
  }

  /** For the cancellation of a job that the hot store does not have. */
  async load(jobId: string): Promise<TrackedJob | undefined> {
    const record = await this.recordFromRow(jobId);
    const nowMs = this.#parts.clock.monotonicMs();
    return record && trackedJobOf(record, { nowMs, storeNowMs: record.attemptMs });
  }

  /** Writes the number of the next attempt before the hot store uses it. */
  raise(
    { jobId, attemptId }: TrackedJob,
    next: { countedAttempts: number; backOffMs: number | undefined },
  ): Promise<Raised> {
    return this.#parts.rows.raise({ jobId, attemptId, ...next });
  }

  /** Commits the end of a job, before the node gets its acknowledgement and the session the result. */
  async end(end: End): Promise<Ended> {
    const ended = await this.#parts.rows.end(end);
    await failpoint("result.after-row");
    return ended;
  }

  /**
   * Compares open rows with the hot store. Returns how many jobs this instance has written again. A record that is ahead of
   * its row was written by an instance that does not know rows; the row follows it.
   */
  async compare(open: readonly JobAttempt[]): Promise<number> {
    const now = await readAttempts(this.#parts.hot, open);
    const lost: Refill[] = [];
    const ended: string[] = [];
    const ahead: JobAttempt[] = [];
    for (const [at, { jobId, attemptId }] of open.entries()) {
      const record = now[at];
      const hotAttemptId = record?.attemptId ?? 0;
      if (hotAttemptId < attemptId) lost.push({ jobId, seenAttemptId: attemptId, hotAttemptId });
      else if (record?.state === "FINISHED" || record?.state === "RELEASED") ended.push(jobId);
      else if (hotAttemptId > attemptId) ahead.push({ jobId, attemptId: hotAttemptId });
    }
    if (ahead.length > 0) await this.#parts.rows.follow(ahead);
    await Promise.all(ended.map((jobId) => this.#endAsRecord(jobId)));
    return lost.length === 0 ? 0 : this.#refill(lost);
  }

  /**
   * Writes jobs again that the hot store has lost, or has at an older attempt: with a higher attempt, first in the row, then
   * in the hot store. The recovery worker of any instance continues with them.
   */
  async #refill(lost: readonly Refill[]): Promise<number> {
    const { rows } = this.#parts;
    const raised = await rows.refill(lost);
    await failpoint("refill.after-row");
    const written = await Promise.all(raised.map((row) => this.#put(row, 0)));
    const decided = raised.filter(({ isDecided }, at) => written[at] && !isDecided);
    if (decided.length > 0) await rows.decide(decided.map(({ jobId }) => jobId));
    return written.filter(Boolean).length;
  }

  async #endAsRecord(jobId: string): Promise<void> {
    const { hot, rows } = this.#parts;
    const record = await readJob(hot, jobId, { result: true });
    if (!record?.outcome) return;
    const { attemptId, outcome, result = "{}" } = record;
    const { error } = JSON.parse(result) as { error?: JobError };
    const body = memberText(result, "body", "INVALID_MESSAGE")?.text;
    await rows.follow([{ jobId, attemptId }]);
    await rows.end({ jobId, attemptId, outcome, result: body, error });
  }

  /** Writes the record of a row that was opened by this instance. `false`: the job needs no placement. */
  open(row: RowWithPayload): Promise<boolean> {
    return this.#put(row, RECOVER_AFTER_MS);
  }

  /**
   * Writes the record of an open row, then binds its request, as a submit does. A row that its submit left undecided goes if
   * another job has the request. After `inMs` the recovery worker of any instance continues with the job.
   */
  async #put(row: RowWithPayload, inMs: number): Promise<boolean> {
    const { hot, settings } = this.#parts;
    const { jobId, tenant, requestId, attemptId, countedAttempts, isDecided } = row;
    const job = jobOfRow(row, this.#defaults);
    if (!("jobId" in job)) {
      await this.#endUnreadable(row, job);
      return false;
    }
    const createdMs = row.createdAt.getTime();
    const put = await putJob(hot, { job, attemptId, countedAttempts, createdMs, isDecided });
    if (put === "newer") return false; // `same`: a job whose back-off is over has its record
    await failpoint("refill.after-record");
    const ttlMs = bindingTtlMs(job, settings);
    const candidate = { tenant, requestId, jobId, bodyHash: job.bodyHash, ttlMs };
    if (isDecided) await bind(hot, candidate);
    else if (put === "void" || (await decideRequest(hot, candidate)) !== "ours") {
      await Promise.all([dropJob(hot, jobId), this.#parts.rows.undo({ jobId, attemptId })]);
      return false;
    }
    await Promise.all([
      persistJob(hot, jobId),
      addRecent(hot, [{ jobId, tenant }], { keepMs: settings.retentionMs }),
      enterRecoveryIndex(hot, [{ jobId, inMs }]),
    ]);
    return true;
  }

  async #endUnreadable({ jobId, attemptId }: RowWithPayload, error: JobError): Promise<void> {
    const { rows, log } = this.#parts;
    log.warn({ event: "job.unreadable", jobId, error }, "cannot read the row of a job; it failed");
    await rows.end({ jobId, attemptId, outcome: "failed", error });
  }
}
