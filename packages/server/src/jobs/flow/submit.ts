import { hash } from "node:crypto";
import { compactJson, type FinalizeReason, type JsonText, TenureError } from "@tenure/protocol";
import pLimit from "p-limit";
import { failpoint } from "#failpoint";
import { batchPerTick } from "../../kernel/batch.ts";
import { uuid7 } from "../../kernel/random.ts";
import type { JobSpecText } from "../api/raw-json.ts";
import type { JobsContext, JobsSettings } from "../context.ts";
import { type LiveJob, needOf } from "../memory/tracked-jobs.ts";
import { createNeedCounts } from "../memory/wait-queue.ts";
import { type Bound, bind, readBinding } from "../store/binding-store.ts";
import type { JobRecord, JobSpecRecord } from "../store/job-codec.ts";
import { type Created, createJob, dropJob, readJob, voidJob } from "../store/job-store.ts";
import { addRecent, type RecentJob } from "../store/recent-store.ts";
import { type DueEntry, enterDue, leaveDue } from "../store/recovery-index-store.ts";
import type { Turns } from "../turns/turns.ts";
import { attemptsInAllMax } from "./attempt-outcomes.ts";
import type { AheadSlot, Placement } from "./placement.ts";
import type { Retention } from "./retention.ts";
import { createTenantLimits } from "./tenant-limits.ts";

export interface Submission extends JobSpecText {
  tenant: string;
  /** The name of the caller's token. */
  token?: string | undefined;
  sessionId?: string | undefined;
  turn?: boolean | undefined;
  finalize?: FinalizeReason | undefined;
  /** Its client has said it before. */
  again?: boolean | undefined;
}

/** `duplicate`: the request has its job already, and this is it. */
export type Submitted =
  | { outcome: "accepted"; job: LiveJob; ahead?: AheadSlot | undefined }
  | { outcome: "duplicate"; record: JobRecord };

export interface Submit {
  /**
   * Takes a job in. `accept` is called once it is certain which job it is, before anything else is said of it.
   * Throws what the caller is told: `REQUEST_ID_REUSED`, `QUEUE_FULL`, `RATE_LIMITED`, `PAYLOAD_TOO_LARGE`,
   * `DEPENDENCY_DOWN`.
   */
  submit(submission: Submission, accept: (submitted: Submitted) => void): Promise<void>;
}

export interface SubmitStory {
  placement: Placement;
  turns: Pick<Turns, "join" | "inLine">;
  retention: Pick<Retention, "shortage">;
}

/** After so long without a word another instance looks whether somebody has the job in hand. */
export const DUE_AFTER_MS = 2_000;

/** By then whoever has a job in hand has joined its turn, or another instance has. Then the client asks again. */
const JOIN_LIMIT_MS = 2 * DUE_AFTER_MS;
const JOIN_LOOK_MS = 20;
const ORPHANS_MAX = 10_000;
/** Many who ask again soon would take the time in which the queue could get shorter. */
const FULL_RETRY_MS = 1_000;
/**
 * How often one submit begins again because its request changed hands meanwhile. Twice takes two rivals that each stop
 * halfway; without a bound a binding that never gives way would keep a submit busy for ever.
 */
const TRIES_MAX = 8;
/** How many are being written down at once. More of them bring no more through, and results wait behind them. */
const WRITING_MAX = 256;

export function createSubmit(context: JobsContext, story: SubmitStory): Submit {
  const { hot, instanceId, clock, random, settings, book, waiting, meter } = context;
  const limits = createTenantLimits(context);
  const limit = pLimit(WRITING_MAX);
  /** By pool: let in, but not yet placed or waiting. */
  const entering = new Map<string, number>();
  /** The same by tenant: with how many different needs. */
  const enteringNeeds = createNeedCounts();
  /** Jobs whose submit here never heard what became of it. */
  const orphans = new Set<string>();
  const enter = batchPerTick<DueEntry, void>(async (_, entries) => {
    await enterDue(hot, entries);
    return [];
  });
  const list = batchPerTick<RecentJob, void>(async (_, jobs) => {
    await addRecent(hot, jobs, { keepMs: settings.retentionMs });
    return [];
  });

  async function submit(
    submission: Submission,
    accept: (submitted: Submitted) => void,
  ): Promise<void> {
    const { tenant } = submission;
    const need = needAtDoor(submission);
    // Judged and counted in one step: submits of the same moment must see each other's needs.
    const isOneTooMany = isOneNeedTooMany(submission);
    enteringNeeds.add(tenant, need);
    const payloadBytes = Buffer.byteLength(submission.payload.text);
    limits.enter(tenant, payloadBytes);
    try {
      await letIn(submission, { isOneTooMany, payloadBytes });
      return await takeIn(submission, accept);
    } finally {
      limits.leave(tenant, payloadBytes);
      enteringNeeds.remove(tenant, need);
    }
  }

  async function takeIn(
    submission: Submission,
    accept: (submitted: Submitted) => void,
  ): Promise<void> {
    const { pool, turn, sessionId, finalize } = submission;
    entering.set(pool, (entering.get(pool) ?? 0) + 1);
    try {
      const submitted =
        turn && sessionId
          ? await story.turns.inLine(sessionId, finalize ? "closes" : "joins", (atMyTurn) =>
              begin(submission, atMyTurn),
            )
          : await begin(submission);
      meter.submitted(submitted.outcome);
      accept(submitted);
      if (submitted.outcome !== "accepted") return;
      const { job, ahead } = submitted;
      // One that was cancelled before it was in its turn has ended, and waits for no node.
      if (book.get(job.jobId) === job) story.placement.place(job, ahead);
      else ahead?.giveBack();
    } finally {
      const left = (entering.get(pool) ?? 1) - 1;
      if (left === 0) entering.delete(pool);
      else entering.set(pool, left);
    }
  }

  /** Before anything is written: whoever is refused here has left no trace. */
  async function letIn(
    { tenant, request_id: requestId, pool }: Submission,
    { isOneTooMany, payloadBytes }: { isOneTooMany: boolean; payloadBytes: number },
  ): Promise<void> {
    const { payloadBytesMax, queueMax } = settings;
    if (payloadBytes > payloadBytesMax)
      throw new TenureError("PAYLOAD_TOO_LARGE", { limit_bytes: payloadBytesMax });
    limits.check(tenant, payloadBytes);
    const isFull = waiting.sizeOf(pool) + (entering.get(pool) ?? 0) >= queueMax;
    const shortage = story.retention.shortage();
    if (!isFull && !isOneTooMany && !shortage) return;
    // A request that has its job is no newcomer: it may always ask for it.
    if (await readBinding(hot, { tenant, requestId })) return;
    if (shortage)
      throw new TenureError("QUEUE_FULL", {
        queue: "the store of ended jobs",
        limit: shortage.limit,
        retry_after_ms: shortage.retryAfterMs,
      });
    throw new TenureError("QUEUE_FULL", {
      queue: isFull ? `the queue of pool ${pool}` : `different needs of tenant ${tenant}`,
      limit: isFull ? queueMax : settings.tenantNeedsMax,
      retry_after_ms: FULL_RETRY_MS,
    });
  }

  /** A job with a need that others of its tenant wait with already adds no other. */
  function isOneNeedTooMany(submission: Submission): boolean {
    const { tenant, pool, service, turn } = submission;
    if (waiting.needsOf(tenant) + enteringNeeds.of(tenant) < settings.tenantNeedsMax) return false;
    if (enteringNeeds.has(tenant, needAtDoor(submission))) return false;
    return turn === true || !waiting.hasNeed(tenant, { pool, need: needOf(service) });
  }

  async function begin(submission: Submission, atMyTurn?: () => Promise<void>): Promise<Submitted> {
    const { text: payload } = submission.payload;
    const known = submission.again && (await limit(() => find(submission)));
    if (known) return duplicateOf(submission, known);
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const spec = specOf(submission);
      const { jobId } = spec;
      const suitor = { ...spec, ttlMs: bindingTtlMs(spec, settings) };
      const asksAhead = atMyTurn === undefined;
      const { answer, bound, ahead } = await limit(() =>
        write(spec, { payload, suitor, asksAhead }),
      );
      await failpoint("submit.after-binding");
      if (answer.outcome === "void" || bound.outcome !== "bound") ahead?.giveBack();
      // Somebody saw the binding before the record, and took the request over: then it has its job.
      if (answer.outcome === "void") continue;
      const winner = await decide(suitor, bound);
      if (winner === "ours") {
        const createdMs = answer.outcome === "created" ? answer.createdMs : clock.wallMs();
        const job = take(spec, payload, createdMs);
        await atMyTurn?.();
        if (atMyTurn) await story.turns.join(job);
        return { outcome: "accepted", job, ahead: bound.outcome === "bound" ? ahead : undefined };
      }
      await Promise.all([dropJob(hot, jobId), leaveDue(hot, [jobId])]);
      return duplicateOf(submission, winner);
    }
    throw undecided(submission.request_id);
  }

  /** `undefined` decides nothing: then it goes the way of a new one. */
  async function find(submission: Submission): Promise<"reused" | JobRecord | undefined> {
    const { tenant, request_id: requestId } = submission;
    const binding = await readBinding(hot, { tenant, requestId });
    const record = binding && (await readJob(hot, binding.jobId, { result: true }));
    return record && binding.bodyHash !== bodyHash(submission) ? "reused" : record;
  }

  async function duplicateOf(
    { request_id }: Submission,
    winner: "reused" | JobRecord,
  ): Promise<Submitted> {
    if (winner === "reused") throw new TenureError("REQUEST_ID_REUSED", { request_id });
    const { jobId, state } = winner;
    // Should its submitter have died before it was in the index: from now on somebody looks after it.
    if (state === "CREATED")
      await enter("", { jobId, inMs: orphans.delete(jobId) ? 0 : DUE_AFTER_MS });
    return { outcome: "duplicate", record: await inItsTurn(winner) };
  }

  /** In one pipeline: each is a step that anybody can go on from. */
  async function write(
    spec: JobSpecRecord,
    { payload, suitor, asksAhead }: { payload: string; suitor: Suitor; asksAhead: boolean },
  ): Promise<{ answer: Created; bound: Bound; ahead: AheadSlot | undefined }> {
    const { jobId } = spec;
    const created = createJob(hot, { ...spec, payload });
    await failpoint("submit.after-record");
    const entered = enter("", { jobId, inMs: DUE_AFTER_MS });
    await failpoint("submit.after-due");
    const binding = bind(hot, suitor);
    // Behind them in the same pipeline, on the guess that the request is a new one: most are.
    const newcomer = { ...spec, attemptId: 1, createdAtMs: Number.POSITIVE_INFINITY };
    const ahead = asksAhead ? story.placement.askAhead(newcomer) : undefined;
    try {
      const [answer, , bound] = await Promise.all([created, entered, binding]);
      return { answer, bound, ahead };
    } catch (error) {
      ahead?.giveBack();
      return orphaned(jobId, error);
    }
  }

  /** Nobody has it in hand if it was written after all. Asked for again, it need not wait until somebody wonders. */
  function orphaned(jobId: string, error: unknown): never {
    if (orphans.size >= ORPHANS_MAX) orphans.clear();
    orphans.add(jobId);
    throw error;
  }

  type Suitor = Parameters<typeof bind>[1];

  /** Which job is the request's: ours, or the one that was there before. */
  async function decide(suitor: Suitor, first: Bound): Promise<"ours" | "reused" | JobRecord> {
    let bound = first;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      if (bound.outcome === "bound") return "ours";
      const record = await readJob(hot, bound.jobId, { result: true });
      if (record) return bound.outcome === "reused" ? "reused" : record;
      // A binding whose job has no record, and after this never will have one.
      if ((await voidJob(hot, bound.jobId)) === "void")
        bound = await bind(hot, suitor, bound.jobId);
    }
    if (bound.outcome === "bound") return "ours";
    throw undecided(suitor.requestId);
  }

  /**
   * A job of a turn is accepted once it is in its turn, also by whoever did not submit it first: a client that has
   * all its jobs accepted may end the turn, and one that joined after that would open another.
   */
  async function inItsTurn(record: JobRecord): Promise<JobRecord> {
    const untilMs = clock.monotonicMs() + JOIN_LIMIT_MS;
    let now = record;
    while (now.turn && now.sessionId && !now.turnId && now.state === "CREATED") {
      if (clock.monotonicMs() > untilMs)
        throw new TenureError("DEPENDENCY_DOWN", {
          dependency: "the instance that has this request in hand",
        });
      await clock.sleep(JOIN_LOOK_MS);
      now = (await readJob(hot, now.jobId, { result: true })) ?? now;
    }
    return now;
  }

  function take(spec: JobSpecRecord, payload: string, createdMs: number): LiveJob {
    const job = newJob(spec, { payload, createdMs, nowMs: clock.monotonicMs() });
    context.tracing.jobBegun(job);
    book.add(job);
    list("", { jobId: job.jobId, tenant: job.tenant }).catch(() => {});
    return job;
  }

  function specOf(submission: Submission): JobSpecRecord {
    const { pool, service, priority = 0, timeout_ms, pending_ms } = submission;
    const turn = (submission.turn ?? false) && submission.sessionId !== undefined;
    const runTimeoutMs = timeout_ms ?? settings.runTimeoutMs;
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
      pendingTimeoutMs: pending_ms ?? settings.pendingTimeoutMs,
      ackTimeoutMs: settings.ackTimeoutMs,
      runTimeoutMs,
      attemptsMax: settings.attemptsMax,
    };
  }

  return { submit };
}

/**
 * How long a request stays bound if its job is never released: as long as the slowest job can take, and as long as it
 * is kept then. The release of the job corrects it (`keepBinding`).
 */
export function bindingTtlMs(
  spec: JobSpecRecord,
  { retentionMs }: Pick<JobsSettings, "retentionMs">,
): number {
  const attemptMs = spec.pendingTimeoutMs + spec.ackTimeoutMs + 2 * spec.runTimeoutMs;
  return retentionMs + attemptsInAllMax(spec) * attemptMs;
}

const undecided = (requestId: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", {
    dependency: "the hot store",
    reason: `it could not be decided which job request ${requestId} has; submit it again`,
  });

/** Which turn a job will belong to is not known yet: each of them counts as a need of its own. */
const needAtDoor = ({ pool, service, turn, request_id }: Submission): string =>
  service || turn ? `${pool} ${needOf(service)}${turn ? ` for ${request_id}` : ""}` : pool;

/**
 * What was asked for: the same request must have the same. Without how it is traced, and without `pending_ms`, which an
 * instance of 0.1.0 does not know: the same request sent there again would look like another. White space between the
 * tokens of the payload does not count. For what `JSON.stringify` writes it is the hash of release 0.1.0, which parsed the
 * payload and wrote it again.
 */
function bodyHash({ pool, service, priority, timeout_ms, payload }: Submission): string {
  const words = JSON.stringify([pool, service ?? null, priority ?? 0, timeout_ms ?? null]);
  return hash("sha256", words + compactText(payload), "base64url");
}

const compactText = ({ text, isCompact }: JsonText): string =>
  isCompact ? text : compactJson(text);

function newJob(
  spec: JobSpecRecord,
  at: { payload: string; createdMs: number; nowMs: number },
): LiveJob {
  return {
    jobId: spec.jobId,
    tenant: spec.tenant,
    token: spec.token,
    requestId: spec.requestId,
    pool: spec.pool,
    service: spec.service,
    priority: spec.priority,
    pendingTimeoutMs: spec.pendingTimeoutMs,
    ackTimeoutMs: spec.ackTimeoutMs,
    timeoutMs: spec.runTimeoutMs,
    attemptsMax: spec.attemptsMax,
    originInstanceId: spec.originInstanceId,
    traceId: spec.traceId,
    sessionId: spec.sessionId,
    turnId: undefined,
    finalize: spec.finalize,
    payload: at.payload,
    payloadBytes: Buffer.byteLength(at.payload),
    state: "CREATED",
    attemptId: 1,
    countedAttempts: 0,
    nodeId: undefined,
    former: new Set(),
    affinity: "no_turn",
    createdAtMs: at.createdMs,
    sinceMs: at.nowMs,
    attemptSinceMs: at.nowMs,
    need: needOf(spec.service),
    lastReason: undefined,
    isSuspect: false,
  };
}
