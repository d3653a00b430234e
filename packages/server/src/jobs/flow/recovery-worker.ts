import { serves } from "@tenure/protocol";
import { every, type Service } from "../../kernel/service.ts";
import { isStoreDown, type JobsContext } from "../context.ts";
import type { RosterNode } from "../memory/node-pool.ts";
import { type LiveJob, liveJobOf, type Place } from "../memory/tracked-jobs.ts";
import { type DueAction, dueAction, LOOK_AGAIN_MS } from "../policy/recovery-policy.ts";
import { bind } from "../store/binding-store.ts";
import type { JobRecord } from "../store/job-codec.ts";
import { dropJob, persistJob, readJob } from "../store/job-store.ts";
import { DUE_SHARDS } from "../store/keys.ts";
import { addRecent } from "../store/recent-store.ts";
import { type DueEntry, leaveDue, rescheduleDue, takeDue } from "../store/recovery-index-store.ts";
import { holdsSlot } from "../store/slot-store.ts";
import type { Turns } from "../turns/turns.ts";
import type { Endings } from "./attempt-outcomes.ts";
import type { Placement } from "./placement.ts";
import { endingOf, type Results } from "./result-delivery.ts";
import type { Retention } from "./retention.ts";
import { bindingTtlMs } from "./submit.ts";

export interface DueStory {
  endings: Endings;
  turns: Pick<Turns, "join" | "placedOrEnded">;
  placement: Placement;
  results: Results;
  retention: Pick<Retention, "bytesOf" | "ended">;
  takeUp(jobId: string, at?: Place): Promise<LiveJob | undefined>;
  giveUpWaiting(job: LiveJob): void;
  storeTimeMs(): Promise<number>;
}

const INTERVAL_MS = 1_000;
const TAKEN_MAX = 100;
/** Longer than this a job in hand is never past its deadline: something went wrong, look at the record. */
const OVERDUE_MS = 30_000;
/** A job that is neither waiting nor on a node is on its way to one. Nobody takes longer for that. */
const PLACING_MS_MAX = 10_000;
/** How often, and for how long, those who wait here are claimed in the index. */
const CLAIM_INTERVAL_MS = 1_500;
const CLAIM_MS = 4_000;
/** Nodes that are asked whether they hold the slot of one job. */
const ASKED_MAX = 64;

/**
 * Takes what is due from the index and does what its record says, whoever began it. A job that somebody here has in
 * hand is passed over; one of a dead instance is finished by whoever comes first.
 */
export function createDueWorker(context: JobsContext, story: DueStory): Service {
  const { hot, book, links, roster, waiting, clock, log, meter, settings } = context;
  /** Until the nodes had time for two heartbeats after an outage, an absent slot proves nothing. */
  let slotsTrustedAtMs = clock.monotonicMs() + settings.slotTtlMs;

  async function round(signal: AbortSignal): Promise<void> {
    const shards = Array.from({ length: DUE_SHARDS }, (_, shard) => shard);
    // Asked for each time: by it this instance says to others until when something is worth doing.
    const [nowMs, ...taken] = await Promise.all([
      story.storeTimeMs(),
      ...shards.map((shard) => takeDue(hot, shard, { countMax: TAKEN_MAX })),
    ]);
    const jobIds = taken.flatMap((each) => each.jobIds).filter((jobId) => !isInHand(jobId));
    if (jobIds.length === 0) return;
    for (let from = 0; from < jobIds.length && !signal.aborted; from += TAKEN_MAX)
      await Promise.all(jobIds.slice(from, from + TAKEN_MAX).map((jobId) => rescue(jobId, nowMs)));
    if (taken.some((each) => each.jobIds.length === TAKEN_MAX)) loop.wake();
  }

  /** Taking it has moved it ahead: it comes again. */
  function isInHand(jobId: string): boolean {
    const job = book.get(jobId);
    if (!job) return false;
    if (waiting.has(jobId)) return true;
    if (job.state === "CREATED") return clock.monotonicMs() - job.attemptSinceMs < PLACING_MS_MAX;
    // Its node left, and nobody here got to see to its jobs.
    if (!links.node(job.nodeId ?? "")) return false;
    const limitMs = job.pendingTimeoutMs + job.ackTimeoutMs + 2 * job.timeoutMs + OVERDUE_MS;
    return clock.monotonicMs() - job.attemptSinceMs < limitMs;
  }

  async function rescue(jobId: string, nowMs: number): Promise<void> {
    try {
      const record = await readJob(hot, jobId, { result: true });
      const action = dueAction(record, nowMs);
      if (action.do !== "check_slot") meter.rescued(action.do);
      await act(jobId, record, action, nowMs);
    } catch (error) {
      if (isStoreDown(error)) throw error;
      log.error({ event: "job.not-rescued", jobId, error }, "will be looked at again");
    }
  }

  async function act(
    jobId: string,
    record: JobRecord | undefined,
    action: DueAction,
    nowMs: number,
  ): Promise<void> {
    switch (action.do) {
      case "leave":
        await leaveDue(hot, [jobId]);
        return;
      case "bind":
        if (await isBound(record!)) await adopt(record!);
        return;
      case "adopt":
        return adopt(record!);
      case "give_up": {
        const job = await story.takeUp(jobId);
        if (job) story.giveUpWaiting(job);
        return;
      }
      case "check_slot":
        return checkSlot(record!, action.inMs);
      case "retry": {
        const job = await story.takeUp(jobId);
        if (job) await story.endings.retry(job, action.reason);
        return;
      }
      case "conclude":
        return conclude(record!, action.released, nowMs);
    }
  }

  /** The submitter stopped before it was certain: now it is, for this job or for another. */
  async function isBound(record: JobRecord): Promise<boolean> {
    const { jobId, tenant, requestId, bodyHash } = record;
    const ttlMs = bindingTtlMs(record, settings);
    const bound = await bind(hot, { jobId, tenant, requestId, bodyHash, ttlMs });
    if (bound.outcome === "bound") {
      // Its submitter may not have come to listing it either.
      await addRecent(hot, [{ jobId, tenant }], { keepMs: settings.retentionMs });
      return (await persistJob(hot, jobId)) === "persisted";
    }
    if ((await dropJob(hot, jobId)) !== "kept") await leaveDue(hot, [jobId]);
    return false;
  }

  async function adopt({ jobId, turn: isInTurn }: JobRecord): Promise<void> {
    const job = await story.takeUp(jobId);
    if (job?.state !== "CREATED") return;
    // Its submitter stopped before it had joined its turn.
    if (isInTurn && !job.turnId) await story.turns.join(job);
    const node = await slotOf(job);
    if (node) story.placement.offer(job, node);
    else story.placement.place(job);
  }

  /** A node that is full because of this very job: whoever had it in hand stopped after it had reserved. */
  async function slotOf(job: LiveJob): Promise<RosterNode | undefined> {
    const isFull = ({ online, tenants, reserved, capacity }: RosterNode) =>
      online && serves(tenants, job.tenant) && reserved >= capacity;
    const full = [...roster.inPool(job.pool)].filter(isFull).slice(0, ASKED_MAX);
    const held = await Promise.all(full.map(({ nodeId }) => holdsSlot(hot, nodeId, job)));
    return full.find((_, at) => held[at]);
  }

  async function checkSlot(record: JobRecord, inMs: number): Promise<void> {
    const { jobId, attemptId, nodeId } = record;
    const isTrusted = clock.monotonicMs() >= slotsTrustedAtMs;
    if (!isTrusted || !nodeId || (await holdsSlot(hot, nodeId, { jobId, attemptId })))
      return rescheduleDue(hot, [{ jobId, inMs }]);
    const job = await story.takeUp(jobId, { attemptId, nodeId });
    if (job) {
      meter.rescued("node_lost");
      await story.endings.retry(job, "node_lost", "its slot ran out");
    }
  }

  async function conclude(record: JobRecord, released: boolean, nowMs: number): Promise<void> {
    const { jobId, tenant, sessionId, originInstanceId, listeners, outcome } = record;
    if (!outcome) return;
    // Ever less often: a session that never acknowledges must not be sent its results all day.
    const inMs = Math.min(Math.max(nowMs - record.stateMs, LOOK_AGAIN_MS), 300_000);
    await rescheduleDue(hot, [{ jobId, inMs }]);
    if (sessionId && story.results.isAwaited(sessionId, jobId))
      return story.retention.ended(
        { jobId, bytes: story.retention.bytesOf(record.result) },
        { leaves: false },
      );
    // Whoever ended it may have stopped before it ended the turn too.
    if (!released) story.turns.placedOrEnded(liveJobOf(record, times(nowMs)));
    const names = { tenant, sessionId, originInstanceId, listeners };
    const ending = { ...endingOf(record, outcome), ...names, released, rescued: true };
    // Not waited for: it ends when the session acknowledges.
    story.endings.conclude(ending).catch((error) => {
      if (!isStoreDown(error))
        log.error({ event: "job.not-concluded", jobId, error }, "the due index will find it");
    });
  }

  const times = (storeNowMs: number) => ({ nowMs: clock.monotonicMs(), storeNowMs });

  /** Whoever waits here is in good hands: the others need not look. */
  async function claimWaiting(): Promise<void> {
    const before = clock.monotonicMs() - CLAIM_INTERVAL_MS / 2;
    const claimed: DueEntry[] = [];
    for (const { jobId, sinceMs } of waiting.all())
      if (sinceMs <= before) claimed.push({ jobId, inMs: CLAIM_MS });
    if (claimed.length > 0) await rescheduleDue(hot, claimed);
  }

  const claims = every(CLAIM_INTERVAL_MS, claimWaiting, {
    clock,
    onError: (error) => log.debug({ event: "waiting.not-claimed", error }, "others may help out"),
  });
  const loop = every(INTERVAL_MS, round, {
    clock,
    onError: (error) => {
      slotsTrustedAtMs = clock.monotonicMs() + settings.slotTtlMs;
      log.warn({ event: "due.not-looked", error }, "will look again in a moment");
    },
  });
  return {
    start() {
      claims.start();
      loop.start();
    },
    async stop() {
      await Promise.all([claims.stop(), loop.stop()]);
    },
  };
}
