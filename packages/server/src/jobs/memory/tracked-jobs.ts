import type { Clock } from "../../kernel/clock.ts";
import type { Service } from "../../kernel/service.ts";
import type { TrackedJob } from "../job.ts";
import { createDeadlines, type Deadlines } from "./deadlines.ts";
import { createWaitQueue, type WaitQueue } from "./wait-queue.ts";

/**
 * `state`: the limit of its state (waiting, acknowledgement, run). `node_wait`: the job stops waiting for one particular
 * node. `back_off`: its next attempt begins.
 */
export type DeadlineKind = "state" | "node_wait" | "back_off";

/**
 * The jobs this instance tracks: their index, the wait queue and their deadlines in one object, so that the three cannot
 * drift apart.
 *
 * Invariants: a job in the queue is in the index; a deadline is of a job in the index; at most one object is in the index for
 * a job id.
 */
export interface TrackedJobs extends Service {
  get(jobId: string): TrackedJob | undefined;
  /** Whether this very object is tracked, and not a later state of the same job. */
  has(job: TrackedJob): boolean;
  /** Tracks the job from here. It, or the object it replaces, leaves the wait queue and loses its deadlines. */
  track(job: TrackedJob): void;
  /** Ends tracking. `false` if the job is not tracked or was replaced: then nothing changes. */
  release(job: TrackedJob): boolean;
  /** Puts the job into the wait queue. Ignored unless the job is tracked. */
  wait(job: TrackedJob): void;
  /** In so many milliseconds from now; replaces a deadline of this kind. Ignored unless the job is tracked. */
  setDeadline(job: TrackedJob, kind: DeadlineKind, inMs: number): void;
  /** The wait queue. Jobs enter by `wait`, and leave by `track`, `release` and `serve`. */
  readonly waiting: Omit<WaitQueue<TrackedJob>, "add" | "remove">;
  /** Open jobs of a tenant, and the bytes of their payloads. */
  openOf(tenant: string): number;
  payloadBytesOf(tenant: string): number;
  size(): number;
  values(): Iterable<TrackedJob>;
}

export function createTrackedJobs(options: {
  clock: Clock;
  onDue: (job: TrackedJob, kind: DeadlineKind) => void;
  onError: (error: unknown) => void;
  /** The waiting jobs of this pool have changed. */
  onQueueChange?: (pool: string) => void;
}): TrackedJobs {
  const { clock, onDue, onError, onQueueChange } = options;
  const jobs = new Map<string, TrackedJob>();
  const tenants = new Map<string, { open: number; payloadBytes: number }>();
  const waiting = createWaitQueue<TrackedJob>(onQueueChange);
  const deadlinesOf = (kind: DeadlineKind): Deadlines => {
    const fire = (jobId: string) => {
      const job = jobs.get(jobId);
      if (job) onDue(job, kind);
    };
    return createDeadlines({ clock, onDue: fire, onError });
  };
  const deadlines: Record<DeadlineKind, Deadlines> = {
    state: deadlinesOf("state"),
    node_wait: deadlinesOf("node_wait"),
    back_off: deadlinesOf("back_off"),
  };
  const timers = Object.values(deadlines);

  function count({ tenant, payloadBytes }: TrackedJob, change: 1 | -1): void {
    const now = tenants.get(tenant) ?? { open: 0, payloadBytes: 0 };
    now.open += change;
    now.payloadBytes += change * payloadBytes;
    if (now.open === 0) tenants.delete(tenant);
    else tenants.set(tenant, now);
  }

  function detach(jobId: string): void {
    waiting.remove(jobId);
    for (const timer of timers) timer.clear(jobId);
  }

  const has = (job: TrackedJob): boolean => jobs.get(job.jobId) === job;

  return {
    get: (jobId) => jobs.get(jobId),
    has,
    track(job) {
      const former = jobs.get(job.jobId);
      if (former) detach(job.jobId);
      if (former === job) return;
      if (former) count(former, -1);
      jobs.set(job.jobId, job);
      count(job, 1);
    },
    release(job) {
      if (!has(job)) return false;
      detach(job.jobId);
      jobs.delete(job.jobId);
      count(job, -1);
      return true;
    },
    wait(job) {
      if (has(job)) waiting.add(job);
    },
    setDeadline(job, kind, inMs) {
      if (has(job)) deadlines[kind].set(job.jobId, inMs);
    },
    waiting,
    openOf: (tenant) => tenants.get(tenant)?.open ?? 0,
    payloadBytesOf: (tenant) => tenants.get(tenant)?.payloadBytes ?? 0,
    size: () => jobs.size,
    values: () => jobs.values(),
    start() {
      for (const timer of timers) timer.start();
    },
    async stop() {
      await Promise.all(timers.map((timer) => timer.stop()));
    },
  };
}
