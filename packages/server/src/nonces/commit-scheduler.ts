import { TenureError } from "@tenure/protocol";
import { failpoint } from "#failpoint";
import type { Clock } from "../kernel/clock.ts";
import type { Operation, OperationResult } from "./commit-batch.ts";
import {
  answerCallers,
  type CommitContext,
  type FinalAnswer,
  IDLE_MS,
  isFinal,
  type PendingCommit,
  rejectCallers,
  returnEntries,
  takeCommit,
} from "./signer-commit.ts";
import {
  createSignerQueue,
  earliestDeadline,
  rejectExpired,
  type SignerQueue,
} from "./signer-queue.ts";
import { ALL_SIGNERS } from "./signer-tenants.ts";
import type { CommitAnswer, SignerAccess, SignerCommit } from "./store/nonce-store.ts";

export interface SchedulerOptions extends CommitContext {
  /** Entries that may wait for one signer. */
  queueMax: number;
  clock: Clock;
  commit(request: { commits: SignerCommit[]; waitMs?: number }): Promise<CommitAnswer[]>;
}

// Statements at once. Few: they leave the pool room for others, and while they run the next ones fill.
const COMMITS_MAX = 4;
// At 10,000 busy signers 0.7 of the raw limit with 16 in a statement, 0.9 with 32, no more with 64.
const SIGNERS_PER_COMMIT_MAX = 32;
// Statements that wait for another instance's lock, besides. Short waits, repeated: well below the pool's time limits.
const LOCK_WAITS_MAX = 4;
const LOCK_WAIT_MAX_MS = 1_000;
const CONTENDED_MS = 1_000;
const HELD_PAUSE_MS = 25;

/**
 * Commits the operations of many signers: serially per signer, many signers per statement. Operations that arrive during a
 * signer's commit become its next one, so the duration of a commit decides the size of the batch, and no timer does.
 *
 * - `queues` has every signer with callers, a commit in flight or a kept lease; `ready` those with callers and no commit.
 * - `depth` counts the entries that are not answered yet, waiting or in flight.
 * - A caller is answered after its commit and never before. A statement whose outcome is unknown is not sent again.
 */
export class CommitScheduler {
  readonly #options: SchedulerOptions;
  readonly #context: CommitContext;
  readonly #queues = new Map<string, SignerQueue>();
  readonly #ready = new Set<SignerQueue>();
  #committing = 0;
  #lockWaits = 0;
  #depth = 0;
  #isScheduled = false;
  #isStopping = false;
  #onDrained: (() => void) | undefined;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    const keeps = (signer: string) => !this.#isStopping && options.keeps(signer);
    this.#context = { ...options, keeps };
  }

  get depth(): number {
    return this.#depth;
  }

  /** Resolves when the operation is committed. `waitMs` limits the wait for a lease of another instance. */
  submit(
    signer: string,
    operation: Operation,
    waitMs: number,
    access: SignerAccess,
  ): Promise<OperationResult> {
    const { clock, queueMax } = this.#options;
    const queue = this.#queueOf(signer);
    if (queue.waiting.length >= queueMax && operation.kind !== "tend") {
      const full = { queue: `requests for signer ${signer}`, limit: queueMax };
      return Promise.reject(new TenureError("QUEUE_FULL", full));
    }
    const sinceMs = clock.monotonicMs();
    const deadlineMs = sinceMs + waitMs;
    return new Promise((resolve, reject) => {
      queue.waiting.push({ operation, access, sinceMs, deadlineMs, resolve, reject });
      this.#depth += 1;
      if (!queue.inFlight) this.#ready.add(queue);
      this.#schedule();
    });
  }

  /** Renews the leases in use and gives back the others. */
  async tend(): Promise<void> {
    const due = [...this.#queues.values()].filter((queue) => this.#isDue(queue));
    await Promise.allSettled(
      due.map(({ signer }) => this.submit(signer, { kind: "tend" }, 0, ALL_SIGNERS)),
    );
  }

  /** Commits what waits, then gives every lease back. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    if (this.#depth > 0)
      await new Promise<void>((resolve) => {
        this.#onDrained = resolve;
      });
    await this.tend();
  }

  #isDue({ signer, term, inFlight, usedAtMs }: SignerQueue): boolean {
    if (!term || inFlight) return false;
    const nowMs = this.#nowMs();
    const isRenewalDue = nowMs - term.renewedAtMs >= this.#options.leaseTtlMs / 3;
    return isRenewalDue || nowMs - usedAtMs >= IDLE_MS || !this.#context.keeps(signer);
  }

  #queueOf(signer: string): SignerQueue {
    const found = this.#queues.get(signer);
    if (found) return found;
    const queue = createSignerQueue(signer);
    this.#queues.set(signer, queue);
    return queue;
  }

  /** Starts commits at the end of this tick, so that requests that arrived together are committed together. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      while (this.#committing < COMMITS_MAX && this.#ready.size > 0) this.#startCommit();
    });
  }

  #startCommit(): void {
    const nowMs = this.#nowMs();
    const chosen = [...this.#ready].slice(0, SIGNERS_PER_COMMIT_MAX);
    for (const queue of chosen) {
      this.#ready.delete(queue);
      queue.inFlight = true;
    }
    for (const queue of chosen.filter((queue) => queue.contendedUntilMs > nowMs))
      void this.#commitContended(queue);
    const others = chosen.filter((queue) => queue.contendedUntilMs <= nowMs);
    if (others.length > 0) void this.#commitTogether(others);
  }

  async #commitTogether(chosen: SignerQueue[]): Promise<void> {
    this.#committing += 1;
    // In one order everywhere: two groups that meet at new signers then cannot deadlock.
    const pending = chosen
      .sort((a, b) => (a.signer < b.signer ? -1 : 1))
      .map((queue) => this.#take(queue));
    try {
      const { answers, sentAtMs } = await this.#send(pending);
      for (const [index, each] of pending.entries()) {
        const answer = answers[index]!;
        if (isFinal(answer)) this.#finish(each, answer, sentAtMs);
        else void this.#commitContended(returnEntries(each), answer);
      }
    } catch (error) {
      for (const each of pending) this.#fail(each, error);
    } finally {
      this.#committing -= 1;
      this.#schedule();
    }
  }

  /** Another instance uses this signer: retries until its lock and its lease are free, as long as callers wait. */
  async #commitContended(queue: SignerQueue, last?: CommitAnswer): Promise<void> {
    queue.contendedUntilMs = this.#nowMs() + CONTENDED_MS;
    let owner = last && this.#noteHeld(queue, last);
    for (;;) {
      if (last) this.#depth -= rejectExpired(queue, this.#nowMs(), owner ?? "another instance");
      if (queue.waiting.length === 0) return this.#release(queue);
      const mayWait = this.#lockWaits < LOCK_WAITS_MAX;
      if (last && (last.outcome === "held" || !mayWait))
        await this.#options.clock.sleep(HELD_PAUSE_MS);
      const leftMs = Math.ceil(earliestDeadline(queue) - this.#nowMs());
      const waitMs = Math.min(LOCK_WAIT_MAX_MS, Math.max(1, leftMs));
      const pending = this.#take(queue);
      this.#lockWaits += 1;
      try {
        const { answers, sentAtMs } = await this.#send([pending], mayWait ? waitMs : undefined);
        const answer = answers[0]!;
        if (isFinal(answer)) return this.#finish(pending, answer, sentAtMs);
        last = answer;
        owner = this.#noteHeld(queue, answer) ?? owner;
      } catch (error) {
        if (!isLockTimeout(error)) return this.#fail(pending, error);
        last = { outcome: "busy" };
      } finally {
        this.#lockWaits -= 1;
      }
      returnEntries(pending);
    }
  }

  #take(queue: SignerQueue): PendingCommit {
    return takeCommit(queue, this.#context, this.#nowMs());
  }

  async #send(pending: PendingCommit[], waitMs?: number) {
    const commits = pending.map(({ commit }) => commit);
    const sentAtMs = this.#nowMs();
    await failpoint("nonce.before-send");
    const answers = await this.#options.commit({
      commits,
      ...(waitMs !== undefined && { waitMs }),
    });
    await failpoint("nonce.before-answer");
    return { answers, sentAtMs };
  }

  /** The owner of a lease that another instance has. */
  #noteHeld(queue: SignerQueue, answer: CommitAnswer): string | undefined {
    if (answer.outcome !== "held") return undefined;
    queue.term = undefined;
    this.#options.telemetry.leaseAcquired.inc({ result: "held" });
    return answer.ownerNode;
  }

  #finish(pending: PendingCommit, answer: FinalAnswer, sentAtMs: number): void {
    this.#depth -= pending.entries.length;
    answerCallers(pending, answer, this.#context, { sentAtMs, nowMs: this.#nowMs() });
    this.#release(pending.queue);
  }

  #fail(pending: PendingCommit, error: unknown): void {
    this.#depth -= pending.entries.length;
    rejectCallers(pending, error);
    this.#release(pending.queue);
  }

  /** No commit of this signer is in flight any more. */
  #release(queue: SignerQueue): void {
    queue.inFlight = false;
    if (queue.waiting.length > 0) this.#ready.add(queue);
    else if (!queue.term) this.#queues.delete(queue.signer);
    this.#schedule();
    if (this.#depth === 0) this.#onDrained?.();
  }

  #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }
}

/** Postgres gave up waiting for the row's lock: the statement did nothing. */
function isLockTimeout(error: unknown): boolean {
  const cause = error instanceof Error ? (error.cause as { code?: string } | undefined) : undefined;
  return cause?.code === "55P03";
}
