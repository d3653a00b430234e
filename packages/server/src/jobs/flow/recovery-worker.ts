import { serves } from "@tenure/protocol";
import { every, type Loop, type Service } from "../../kernel/service.ts";
import { type JobRecord, recordedEnd, type TrackedJob, trackedJobOf } from "../job.ts";
import type { PoolNode } from "../memory/node-pool.ts";
import type { JobsParts } from "../parts.ts";
import { LOOK_AGAIN_MS, type RecoveryAction, recoveryAction } from "../policy/recovery-policy.ts";
import { bindingTtlMs } from "../policy/retry-policy.ts";
import { bind } from "../store/binding-store.ts";
import { dropJob, persistJob, readJob } from "../store/job-store.ts";
import { RECOVERY_SHARDS } from "../store/keys.ts";
import { addRecent } from "../store/recent-store.ts";
import {
  leaveRecoveryIndex,
  type RecoveryEntry,
  rescheduleRecovery,
  takeOverdue,
} from "../store/recovery-index-store.ts";
import { hasSlot } from "../store/slot-store.ts";
import { isStoreDown, logUnlessStoreDown } from "../store-errors.ts";
import type { Turns } from "../turns/turns.ts";
import type { Adoption } from "./adoption.ts";
import type { AttemptOutcomes } from "./attempt-outcomes.ts";
import type { ResultDelivery } from "./result-delivery.ts";
import type { Retention } from "./retention.ts";
import type { Next } from "./step.ts";

const INTERVAL_MS = 1_000;
const TAKEN_MAX = 100;
/** A tracked job that is past its limits by more than this is stuck: its record is read. */
const OVERDUE_MS = 30_000;
/** A tracked job that neither waits nor is on a node is being placed. That never takes longer. */
const PLACING_MS_MAX = 10_000;
/** How often, and for how long, the waiting jobs of this instance are moved ahead in the index. */
const RENEW_INTERVAL_MS = 1_500;
const RENEW_MS = 4_000;
/** Nodes that are checked for the slot of one job. */
const CHECKED_MAX = 64;

interface Collaborators {
  outcomes: Pick<AttemptOutcomes, "conclude">;
  turns: Pick<Turns, "join" | "placedOrEnded">;
  results: Pick<ResultDelivery, "isAwaited">;
  retention: Pick<Retention, "bytesOf" | "ended">;
  adopt: Adoption["adopt"];
}

type Parts = Pick<
  JobsParts,
  | "hot"
  | "rows"
  | "tracked"
  | "connections"
  | "nodePool"
  | "clock"
  | "log"
  | "metrics"
  | "settings"
  | "storeClock"
>;

/**
 * Takes overdue jobs from the recovery index and does what their records require, for any instance that stopped halfway. Jobs
 * tracked by this instance are skipped. The first instance that takes an orphaned job recovers it.
 */
export class RecoveryWorker implements Service {
  readonly #parts: Parts;
  readonly #with: Collaborators;
  readonly #next: Next;
  readonly #loop: Loop;
  readonly #renewal: Loop;
  /** Until nodes had time for two heartbeats after an outage, an absent slot proves nothing. */
  #slotsTrustedAtMs: number;

  constructor(parts: Parts, collaborators: Collaborators, next: Next) {
    this.#parts = parts;
    this.#with = collaborators;
    this.#next = next;
    const { clock, log, settings } = parts;
    this.#slotsTrustedAtMs = clock.monotonicMs() + settings.slotTtlMs;
    this.#renewal = every(RENEW_INTERVAL_MS, () => this.#renewWaiting(), {
      clock,
      onError: (error) =>
        log.debug(
          { event: "waiting.not-claimed", error },
          "could not renew waiting jobs in the recovery index; other instances may adopt them",
        ),
    });
    this.#loop = every(INTERVAL_MS, (signal) => this.#round(signal), {
      clock,
      onError: (error) => {
        this.#slotsTrustedAtMs = clock.monotonicMs() + settings.slotTtlMs;
        log.warn(
          { event: "due.not-looked", error },
          "could not read the recovery index; will retry",
        );
      },
    });
  }

  start(): void {
    this.#renewal.start();
    this.#loop.start();
  }

  async stop(): Promise<void> {
    await Promise.all([this.#renewal.stop(), this.#loop.stop()]);
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { hot, storeClock } = this.#parts;
    const shards = Array.from({ length: RECOVERY_SHARDS }, (_, shard) => shard);
    // The time is read in each round: deadlines of messages to other instances go by it.
    const [nowMs, ...taken] = await Promise.all([
      storeClock.read(),
      ...shards.map((shard) => takeOverdue(hot, shard, { countMax: TAKEN_MAX })),
    ]);
    const jobIds = taken.flatMap((each) => each.jobIds).filter((jobId) => !this.#isAttended(jobId));
    if (jobIds.length === 0) return;
    for (let from = 0; from < jobIds.length && !signal.aborted; from += TAKEN_MAX)
      await Promise.all(
        jobIds.slice(from, from + TAKEN_MAX).map((jobId) => this.#recover(jobId, nowMs)),
      );
    if (taken.some((each) => each.jobIds.length === TAKEN_MAX)) this.#loop.wake();
  }

  /** Whether this instance takes care of the job. Taking it has moved it ahead, so it comes again. */
  #isAttended(jobId: string): boolean {
    const { tracked, connections, clock } = this.#parts;
    const job = tracked.get(jobId);
    if (!job) return false;
    if (tracked.waiting.has(jobId)) return true;
    const attemptMs = clock.monotonicMs() - job.attemptSinceMs;
    if (job.state === "CREATED") return attemptMs < PLACING_MS_MAX;
    // The node left, and the disconnect handler did not retry its jobs.
    if (!connections.node(job.nodeId ?? "")) return false;
    return attemptMs < job.pendingTimeoutMs + job.ackTimeoutMs + 2 * job.runTimeoutMs + OVERDUE_MS;
  }

  async #recover(jobId: string, nowMs: number): Promise<void> {
    const { hot, metrics, log } = this.#parts;
    try {
      const record = await readJob(hot, jobId, { result: true });
      const action = recoveryAction(record, nowMs);
      if (action.do !== "check_slot") metrics.rescued(action.do);
      await this.#act(jobId, record, action, nowMs);
    } catch (error) {
      if (isStoreDown(error)) throw error;
      log.error({ event: "job.not-rescued", jobId, error }, "could not recover job; will retry");
    }
  }

  async #act(
    jobId: string,
    record: JobRecord | undefined,
    action: RecoveryAction,
    nowMs: number,
  ): Promise<void> {
    switch (action.do) {
      case "leave":
        await leaveRecoveryIndex(this.#parts.hot, [jobId]);
        return;
      case "bind":
        if (await this.#isBound(record!)) await this.#adopt(record!);
        return;
      case "adopt":
        return this.#adopt(record!);
      case "give_up": {
        const job = await this.#with.adopt(jobId);
        if (job) return this.#next({ do: "expire", job, deadline: "state" });
        return;
      }
      case "check_slot":
        return this.#checkSlot(record!, action.inMs);
      case "retry": {
        const job = await this.#with.adopt(jobId);
        if (job) return this.#next({ do: "retry", job, reason: action.reason });
        return;
      }
      case "conclude":
        return this.#conclude(record!, action.released, nowMs);
    }
  }

  /** The submitting instance stopped before its job was bound to the request: binds it, or drops it for another job. */
  async #isBound(record: JobRecord): Promise<boolean> {
    const { hot, rows, settings } = this.#parts;
    const { jobId, tenant, requestId, bodyHash } = record;
    const ttlMs = bindingTtlMs(record, settings);
    const bound = await bind(hot, { jobId, tenant, requestId, bodyHash, ttlMs });
    if (bound.outcome === "bound") {
      // The submitting instance may not have listed it either.
      await addRecent(hot, [{ jobId, tenant }], { keepMs: settings.retentionMs });
      return (await persistJob(hot, jobId)) === "persisted";
    }
    if ((await dropJob(hot, jobId)) !== "kept") await leaveRecoveryIndex(hot, [jobId]);
    if (record.durable) await rows.undo({ jobId, attemptId: record.attemptId });
    return false;
  }

  async #adopt({ jobId, turn: isInTurn }: JobRecord): Promise<void> {
    const job = await this.#with.adopt(jobId);
    if (job?.state !== "CREATED") return;
    // The submitting instance stopped before the job had joined its turn.
    if (isInTurn && !job.turnId) await this.#with.turns.join(job);
    const node = await this.#nodeWithSlot(job);
    await this.#next(node ? { do: "place_on", job, node } : { do: "place", job });
  }

  /** A full node that has a slot for this job: its instance stopped after it had reserved. */
  async #nodeWithSlot(job: TrackedJob): Promise<PoolNode | undefined> {
    const { hot, nodePool } = this.#parts;
    const isFull = ({ online, tenants, reserved, capacity }: PoolNode) =>
      online && serves(tenants, job.tenant) && reserved >= capacity;
    const full = [...nodePool.inPool(job.pool)].filter(isFull).slice(0, CHECKED_MAX);
    const found = await Promise.all(full.map(({ nodeId }) => hasSlot(hot, nodeId, job)));
    return full.find((_, at) => found[at]);
  }

  async #checkSlot(record: JobRecord, inMs: number): Promise<void> {
    const { hot, clock, metrics } = this.#parts;
    const { jobId, attemptId, nodeId } = record;
    const isTrusted = clock.monotonicMs() >= this.#slotsTrustedAtMs;
    if (!isTrusted || !nodeId || (await hasSlot(hot, nodeId, { jobId, attemptId })))
      return rescheduleRecovery(hot, [{ jobId, inMs }]);
    const job = await this.#with.adopt(jobId, { attemptId, nodeId });
    if (!job) return;
    metrics.rescued("node_lost");
    await this.#next({ do: "retry", job, reason: "node_lost", detail: "its slot expired" });
  }

  async #conclude(record: JobRecord, isReleased: boolean, nowMs: number): Promise<void> {
    const { hot, clock, log } = this.#parts;
    const { outcomes, turns, results, retention } = this.#with;
    const { jobId, tenant, sessionId, outcome } = record;
    if (!outcome) return;
    // Less and less often, so that a session that never acknowledges is not sent its results all day.
    const inMs = Math.min(Math.max(nowMs - record.stateMs, LOOK_AGAIN_MS), 300_000);
    await rescheduleRecovery(hot, [{ jobId, inMs }]);
    if (sessionId && results.isAwaited(sessionId, jobId))
      return retention.ended(
        { jobId, tenant, bytes: retention.bytesOf(record.result) },
        { leaves: false },
      );
    // The instance that ended the job may have stopped before it ended the turn.
    const times = { nowMs: clock.monotonicMs(), storeNowMs: nowMs };
    if (!isReleased) turns.placedOrEnded(trackedJobOf(record, times));
    // Not awaited: it resolves when the session acknowledges.
    const end = recordedEnd(record, outcome);
    outcomes
      .conclude(end, { isReleased, isRecovered: true })
      .catch(
        logUnlessStoreDown(
          log,
          { event: "job.not-concluded", jobId },
          "could not conclude ended job; will retry",
        ),
      );
  }

  /** Moves the jobs that wait here ahead in the index, so that other instances leave them alone. */
  async #renewWaiting(): Promise<void> {
    const { hot, clock, tracked } = this.#parts;
    const before = clock.monotonicMs() - RENEW_INTERVAL_MS / 2;
    const renewed: RecoveryEntry[] = [];
    for (const { jobId, sinceMs } of tracked.waiting.all())
      if (sinceMs <= before) renewed.push({ jobId, inMs: RENEW_MS });
    if (renewed.length > 0) await rescheduleRecovery(hot, renewed);
  }
}
