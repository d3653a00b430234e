import { DELAY_MS_MAX, type FinalizeReason, TenureError } from "@tenure/protocol";
import type { JobSpecText } from "../api/raw-json.ts";
import { needOf } from "../job.ts";
import { createNeedCounts } from "../memory/need-counts.ts";
import type { JobsParts } from "../parts.ts";
import { exclusionOf } from "../policy/node-selection.ts";
import { readBinding } from "../store/binding-store.ts";
import type { Retention, Shortage } from "./retention.ts";
import { createTenantLimits, type TenantLimits } from "./tenant-limits.ts";

export interface Submission extends JobSpecText {
  tenant: string;
  /** Name of the caller's token. */
  token?: string | undefined;
  sessionId?: string | undefined;
  turn?: boolean | undefined;
  finalize?: FinalizeReason | undefined;
  /** The client has sent it before. */
  again?: boolean | undefined;
}

/** A shorter pause would keep the instance busy with refusals while the queue could get shorter. */
const FULL_RETRY_MS = 1_000;

/** Refuses submits beyond the limits of pools, tenants and the store, before anything is written. */
export class SubmitAdmission {
  readonly #parts: Pick<JobsParts, "hot" | "settings" | "tracked" | "nodePool" | "clock">;
  readonly #retention: Pick<Retention, "shortage">;
  readonly #limits: TenantLimits;
  /** By tenant and pool: admitted, and neither placed nor waiting yet. */
  readonly #entering = new Map<string, number>();
  /** The different needs of those, by tenant. */
  readonly #enteringNeeds = createNeedCounts();

  constructor(
    parts: Pick<JobsParts, "hot" | "settings" | "tracked" | "nodePool" | "clock">,
    retention: Pick<Retention, "shortage">,
  ) {
    this.#parts = parts;
    this.#retention = retention;
    this.#limits = createTenantLimits(parts);
  }

  /** Runs `work` for a submit that is admitted, and counts the submit until `work` is done. */
  async admit(submission: Submission, work: () => Promise<void>): Promise<void> {
    const { tenant, pool } = submission;
    const need = enteringNeed(submission);
    // Checked and counted in one step, so that submits of the same moment see each other's needs.
    const isOneTooMany = this.#isOneNeedTooMany(submission);
    this.#enteringNeeds.add(tenant, need);
    const payloadBytes = Buffer.byteLength(submission.payload.text);
    this.#limits.enter(tenant, payloadBytes);
    try {
      const rechecked = this.#check(submission, { isOneTooMany, payloadBytes });
      if (rechecked) await rechecked;
      const queue = queueOf(tenant, pool);
      this.#entering.set(queue, (this.#entering.get(queue) ?? 0) + 1);
      try {
        await work();
      } finally {
        const left = (this.#entering.get(queue) ?? 1) - 1;
        if (left === 0) this.#entering.delete(queue);
        else this.#entering.set(queue, left);
      }
    } finally {
      this.#limits.leave(tenant, payloadBytes);
      this.#enteringNeeds.remove(tenant, need);
    }
  }

  /** Throws if the submit is refused. A promise only if the store has to be asked first. */
  #check(
    submission: Submission,
    { isOneTooMany, payloadBytes }: { isOneTooMany: boolean; payloadBytes: number },
  ): Promise<void> | undefined {
    const { tenant } = submission;
    const { payloadBytesMax } = this.#parts.settings;
    if (payloadBytes > payloadBytesMax)
      throw new TenureError("PAYLOAD_TOO_LARGE", { limit_bytes: payloadBytesMax });
    checkTimes(submission, this.#parts.clock.wallMs());
    this.#limits.check(tenant, payloadBytes);
    // A job that waits in the table takes no room.
    if (isTimed(submission)) return;
    const isFull = this.#isQueueFull(submission);
    const shortage = this.#retention.shortage(tenant);
    if (!isFull && !isOneTooMany && !shortage) return undefined;
    return this.#refuseNew(submission, { isFull, shortage });
  }

  /** A request that already has a job is never refused. */
  async #refuseNew(
    { tenant, request_id: requestId, pool }: Submission,
    { isFull, shortage }: { isFull: boolean; shortage: Shortage | undefined },
  ): Promise<void> {
    const { hot, settings } = this.#parts;
    if (await readBinding(hot, { tenant, requestId })) return;
    if (shortage)
      throw new TenureError("QUEUE_FULL", {
        queue: shortage.queue,
        limit: shortage.limit,
        retry_after_ms: shortage.retryAfterMs,
      });
    throw new TenureError("QUEUE_FULL", {
      queue: isFull ? `the queue of pool ${pool}` : `different needs of tenant ${tenant}`,
      limit: isFull ? settings.queueMax : settings.tenantNeedsMax,
      retry_after_ms: FULL_RETRY_MS,
    });
  }

  /**
   * Jobs of other tenants do not count: they may wait for nodes that do not serve this one. What all tenants together keep
   * waiting is bounded by `Retention`, which counts open jobs too.
   */
  #isQueueFull(submission: Submission): boolean {
    const { settings, tracked } = this.#parts;
    const { tenant, pool } = submission;
    const entering = this.#entering.get(queueOf(tenant, pool)) ?? 0;
    const inQueue = tracked.waiting.sizeOfTenant(pool, tenant) + entering;
    return inQueue >= settings.queueMax && !this.#canRunNow(submission, entering);
  }

  /**
   * Whether a free slot is left after the jobs that are entering. Not for a job behind others with its need, nor for one of a
   * turn, which may wait for a certain node.
   */
  #canRunNow({ tenant, pool, service, turn }: Submission, entering: number): boolean {
    const { nodePool, tracked } = this.#parts;
    if (turn || tracked.waiting.hasNeed(tenant, { pool, need: needOf(service) })) return false;
    let free = 0;
    for (const node of nodePool.inPool(pool)) {
      if (exclusionOf(node, { tenant, pool, service })) continue;
      free += node.capacity - node.reserved;
      if (free > entering) return true;
    }
    return false;
  }

  /** A job with a need that other jobs of its tenant wait with adds none. */
  #isOneNeedTooMany(submission: Submission): boolean {
    const { settings, tracked } = this.#parts;
    const { tenant, pool, service, turn } = submission;
    const { waiting } = tracked;
    const needs = waiting.needsOf(tenant) + this.#enteringNeeds.of(tenant);
    if (needs < settings.tenantNeedsMax) return false;
    if (this.#enteringNeeds.has(tenant, enteringNeed(submission))) return false;
    return turn === true || !waiting.hasNeed(tenant, { pool, need: needOf(service) });
  }
}

const queueOf = (tenant: string, pool: string): string => `${tenant} ${pool}`;

/** The turn of the job is not known yet, so each job of a turn counts as a need of its own. */
const enteringNeed = ({ pool, service, turn, request_id }: Submission): string =>
  service || turn ? `${pool} ${needOf(service)}${turn ? ` for ${request_id}` : ""}` : pool;

const isTimed = ({ run_at, delay_ms }: Submission): boolean =>
  run_at !== undefined || delay_ms !== undefined;

/** Clocks of callers differ a little from ours. */
const PAST_MS = 60_000;

function checkTimes(submission: Submission, nowMs: number): void {
  const { run_at, delay_ms, durable } = submission;
  const refuse = (reason: string): never => {
    throw new TenureError("INVALID_REQUEST", { reason });
  };
  if (!isTimed(submission)) return;
  if (durable === false) refuse("durable: a job with run_at or delay_ms waits in the database");
  if (submission.turn) refuse("turn: a job of a turn cannot wait in the database");
  if (run_at === undefined) return;
  if (delay_ms !== undefined) refuse("run_at and delay_ms: expected one of them");
  const inMs = Date.parse(run_at) - nowMs;
  if (inMs < -PAST_MS) refuse("run_at: is in the past");
  if (inMs > DELAY_MS_MAX) refuse("run_at: is more than 366 days ahead");
}
