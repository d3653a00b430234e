import { batchPerTick } from "../../kernel/batch.ts";
import { every, type Service } from "../../kernel/service.ts";
import type { HotStore } from "../../store/hot-store.ts";
import type { JobsParts } from "../parts.ts";
import {
  dropOldestBodies,
  type EndedFigures,
  type EndedJob,
  endDue,
  leadSweep,
  sweepEnded,
  UNIT_BYTES,
} from "../store/ended-store.ts";
import { RECOVERY_SHARDS, recoveryShard } from "../store/keys.ts";

/**
 * Bounds the memory of ended jobs. Results and timelines of the oldest jobs are dropped first; request ids and outcomes stay
 * for `retention_seconds`, and when those fill their part of the bound, new jobs are refused.
 *
 * One instance at a time sweeps, and the others read its figures. Figures are some seconds old at most; each instance adds
 * the jobs it has ended since.
 */
export interface Retention extends Service {
  /** Counts an ended job. `leaves`: the job is done, and also leaves the recovery index. */
  ended(job: EndedJob, at: { leaves: boolean }): Promise<void>;
  /** Bytes that a result and its timeline take; 0 for none. */
  bytesOf(result: string | undefined): number;
  /** `undefined` while there is room for new jobs. */
  shortage(): Shortage | undefined;
}

export interface Shortage {
  /** Jobs that fit. */
  limit: number;
  retryAfterMs: number;
}

/** Measured with tiny jobs, rounded up: record and binding of an ended job, then its result and timeline. */
const BYTES: Record<HotStore["kind"], { record: number; body: number }> = {
  memory: { record: 2_000, body: 1_000 },
  redis: { record: 1_500, body: 1_000 },
  "redis-cluster": { record: 1_500, body: 1_000 },
};

/** Records fill at most this share of `ended_bytes_max`, so that a job that has just ended has room for its result. */
const RECORDS_SHARE = 0.75;
/** Bodies are dropped down to this share of `ended_bytes_max`, so that not every sweep drops some. */
const LOW_SHARE = 0.95;
const INTERVAL_MS = 1_000;
const LEASE_MS = 5_000;
/** The figures of another instance's sweep arrive with its next round, and are read with our next. */
const LATE_ROUNDS = 3;
/** Above this share of the bound since the last sweep, the next sweep begins at once. */
const EARLY_SHARE = 1 / 16;
const RETRY_MS = { min: 1_000, max: 30_000 };
const LOG_INTERVAL_MS = 60_000;

const NOTHING: EndedFigures = { jobs: 0, units: 0, firstInMs: undefined };

export function createRetention(
  parts: Pick<
    JobsParts,
    "hot" | "instanceId" | "clock" | "log" | "metrics" | "tracked" | "settings"
  >,
): Retention {
  const { hot, instanceId, clock, log, metrics, tracked, settings } = parts;
  const { endedMax, endedBytesMax: bytesMax, retentionMs: keepMs } = settings;
  const bytes = BYTES[hot.kind];
  const limit = Math.max(
    1,
    Math.min(endedMax, Math.floor((bytesMax * RECORDS_SHARE) / bytes.record)),
  );
  let figures = NOTHING;
  let counted: EndedFigures | undefined;
  /** Jobs ended here since the last round, and in earlier rounds that the figures may not contain yet. */
  let since = { jobs: 0, bytes: 0 };
  let before: number[] = [];
  let isFull = false;
  let dropped = 0;
  let loggedMs = Number.NEGATIVE_INFINITY;

  const leave = batchPerTick<EndedJob, void>(async (shard, jobs) => {
    await endDue(hot, Number(shard), jobs, { keepMs, leaves: true });
    return [];
  });
  const note = batchPerTick<EndedJob, void>(async (shard, jobs) => {
    await endDue(hot, Number(shard), jobs, { keepMs, leaves: false });
    return [];
  });

  async function round(): Promise<void> {
    const began = since;
    const { leads, figures: known } = await leadSweep(hot, {
      instanceId,
      leaseMs: LEASE_MS,
      counted,
    });
    counted = leads ? await sweep() : undefined;
    figures = counted ?? known;
    before = leads ? [] : [began.jobs, ...before].slice(0, LATE_ROUNDS);
    since = { jobs: since.jobs - began.jobs, bytes: since.bytes - began.bytes };
    metrics.ended({ jobs: figures.jobs, bytes: bytesOf(figures) });
    logFullness();
  }

  async function sweep(): Promise<EndedFigures> {
    const shards = await Promise.all(
      Array.from({ length: RECOVERY_SHARDS }, (_, shard) => sweepEnded(hot, shard)),
    );
    const all = shards.reduce(sum, NOTHING);
    const surplusBytes = bytesOf(all) > bytesMax ? bytesOf(all) - bytesMax * LOW_SHARE : 0;
    if (surplusBytes === 0 || all.units === 0) return all;
    const share = Math.min(1, surplusBytes / UNIT_BYTES / all.units);
    const counts = await Promise.all(
      shards.map(({ units }, shard) =>
        units === 0 ? 0 : dropOldestBodies(hot, shard, Math.ceil(units * share)),
      ),
    );
    noteDropped(counts.reduce((some, count) => some + count, 0));
    return { ...all, units: Math.ceil(all.units * (1 - share)) };
  }

  const bytesOf = ({ jobs, units }: EndedFigures): number =>
    jobs * bytes.record + units * UNIT_BYTES;

  function noteDropped(count: number): void {
    metrics.bodiesDropped(count);
    dropped += count;
    if (clock.monotonicMs() - loggedMs < LOG_INTERVAL_MS) return;
    log.info(
      { event: "jobs.bodies-dropped", count: dropped, bytesMax },
      "dropped results and timelines of the oldest ended jobs to stay below jobs.ended_bytes_max",
    );
    loggedMs = clock.monotonicMs();
    dropped = 0;
  }

  function logFullness(): void {
    const wasFull = isFull;
    isFull = shortage() !== undefined;
    if (isFull === wasFull) return;
    const fields = { jobs: figures.jobs, limit };
    if (isFull)
      log.warn(
        { event: "jobs.refused", ...fields },
        "ended jobs fill their bound; new jobs are refused until older ones expire",
      );
    else
      log.info(
        { event: "jobs.admitted", ...fields },
        "ended jobs are below their bound; new jobs are accepted again",
      );
  }

  function shortage(): Shortage | undefined {
    const late = before.reduce((jobs, more) => jobs + more, since.jobs);
    if (figures.jobs + late + tracked.size() < limit) return undefined;
    const firstInMs = figures.firstInMs ?? 0;
    return { limit, retryAfterMs: Math.min(Math.max(firstInMs, RETRY_MS.min), RETRY_MS.max) };
  }

  const loop = every(INTERVAL_MS, round, {
    clock,
    onError: (error) =>
      log.warn({ event: "jobs.not-swept", error }, "could not sweep ended jobs; will retry"),
  });

  return {
    ...loop,
    bytesOf: (result) => (result === undefined ? 0 : bytes.body + Buffer.byteLength(result)),
    async ended({ jobId, bytes: size }, { leaves }) {
      if (size > 0) since = { jobs: since.jobs + 1, bytes: since.bytes + bytes.record + size };
      if (since.bytes > bytesMax * EARLY_SHARE) loop.wake();
      const shard = String(recoveryShard(jobId));
      await (leaves ? leave : note)(shard, { jobId, bytes: size });
    },
    shortage,
  };
}

const sum = (a: EndedFigures, b: EndedFigures): EndedFigures => ({
  jobs: a.jobs + b.jobs,
  units: a.units + b.units,
  firstInMs:
    a.firstInMs === undefined || (b.firstInMs !== undefined && b.firstInMs < a.firstInMs)
      ? b.firstInMs
      : a.firstInMs,
});
