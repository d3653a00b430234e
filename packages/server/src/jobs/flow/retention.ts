import { gatherPerPause } from "../../kernel/batch.ts";
import { every, type Service } from "../../kernel/service.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { createEndedCounts } from "../memory/ended-counts.ts";
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
 * for `retention_seconds`, and when those fill their part of the bound, new jobs are refused. One of several tenants is
 * refused before that: see `SHARE_OF_ROOM`.
 *
 * One instance at a time sweeps, and the others read its figures. Figures are some seconds old at most; each instance adds
 * the jobs it has ended since.
 */
export interface Retention extends Service {
  /** Counts an ended job. `leaves`: the job is done, and also leaves the recovery index. */
  ended(job: EndedJob, at: { leaves: boolean }): Promise<void>;
  /** Bytes that a result and its timeline take; 0 for none. */
  bytesOf(result: string | undefined): number;
  /** `undefined` while there is room for new jobs of this tenant. */
  shortage(tenant: string): Shortage | undefined;
}

export interface Shortage {
  /** What is full, for the caller. */
  queue: string;
  /** Jobs that fit. */
  limit: number;
  retryAfterMs: number;
}

/** Measured with tiny jobs, rounded up: record and binding of an ended job, then its result and timeline. */
const BYTES: Record<HotStore["kind"], { record: number; body: number }> = {
  memory: { record: 2_000, body: 1_000 },
  redis: { record: 1_400, body: 500 },
  "redis-cluster": { record: 1_400, body: 500 },
};

/** Records fill at most this share of `ended_bytes_max`, so that a job that has just ended has room for its result. */
const RECORDS_SHARE = 0.75;
/**
 * With several tenants, one may keep this many jobs for each job there is still room for: three quarters of the bound while
 * it is alone, an equal part when all want more. What it leaves free is there for the others at any time, and no record has
 * to go before `retention_seconds`, as it would if tenants were bounded only once all is full.
 */
const SHARE_OF_ROOM = 3;
/** Bodies are dropped down to this share of `ended_bytes_max`, so that not every sweep drops some. */
const LOW_SHARE = 0.95;
const INTERVAL_MS = 1_000;
/**
 * Ended jobs are counted together. No client waits for it, and it is far below the seconds after which a job that is still in
 * the recovery index is overdue. Counted one by one, a job that ran alone cost nine commands here.
 */
const COUNT_PAUSE_MS = 100;
const LEASE_MS = 5_000;
/** The figures of another instance's sweep arrive with its next round, and are read with our next. */
const LATE_ROUNDS = 3;
/** Above this share of the bound since the last sweep, the next sweep begins at once. */
const EARLY_SHARE = 1 / 16;
const RETRY_MS = { min: 1_000, max: 30_000 };
const LOG_INTERVAL_MS = 60_000;

const NOTHING: EndedFigures = { jobs: 0, units: 0, firstInMs: undefined, tenants: new Map() };

export function createRetention(
  parts: Pick<
    JobsParts,
    "hot" | "instanceId" | "clock" | "log" | "metrics" | "tracked" | "settings"
  >,
): Retention {
  const { hot, instanceId, clock, log, metrics, tracked, settings } = parts;
  const { endedMax, endedBytesMax: bytesMax, retentionMs: keepMs, hasTenants } = settings;
  const bytes = BYTES[hot.kind];
  const limit = Math.max(
    1,
    Math.min(endedMax, Math.floor((bytesMax * RECORDS_SHARE) / bytes.record)),
  );
  let figures = NOTHING;
  let counted: EndedFigures | undefined;
  const endedHere = createEndedCounts({ lateRounds: LATE_ROUNDS });
  /** Of jobs that ended here since the last round. */
  let sinceBytes = 0;
  let isFull = false;
  const noteDropped = createDropNotes(parts);

  const stopping = new AbortController();
  const count = (leaves: boolean) =>
    gatherPerPause<EndedJob>(
      (shard, jobs) => endDue(hot, Number(shard), jobs, { keepMs, leaves }),
      { clock, pauseMs: COUNT_PAUSE_MS, signal: stopping.signal },
    );
  const [leave, note] = [count(true), count(false)];

  async function round(): Promise<void> {
    const beganBytes = sinceBytes;
    endedHere.begin();
    const { leads, figures: known } = await leadSweep(hot, {
      instanceId,
      leaseMs: LEASE_MS,
      counted,
    });
    counted = leads ? await sweep() : undefined;
    figures = counted ?? known;
    endedHere.end(leads);
    sinceBytes -= beganBytes;
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

  function logFullness(): void {
    const wasFull = isFull;
    const refused = [...figures.tenants.keys()].filter(shortage);
    isFull = refused.length > 0 || roomLeft() <= 0;
    if (isFull === wasFull) return;
    const fields = { jobs: figures.jobs, limit, ...(hasTenants() && { tenants: refused }) };
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

  const roomLeft = (): number => limit - figures.jobs - endedHere.all() - tracked.size();

  /** Open jobs count too: they are ended ones soon. */
  function shortage(tenant: string): Shortage | undefined {
    const endedOf = (figures.tenants.get(tenant) ?? 0) + endedHere.of(tenant);
    const own = endedOf + tracked.openOf(tenant);
    const share = hasTenants() ? { tenant, own } : undefined;
    return shortageOf({ room: roomLeft(), limit, share, firstInMs: figures.firstInMs });
  }

  const loop = every(INTERVAL_MS, round, {
    clock,
    onError: (error) =>
      log.warn({ event: "jobs.not-swept", error }, "could not sweep ended jobs; will retry"),
  });

  return {
    start: loop.start,
    async stop() {
      stopping.abort();
      await loop.stop();
    },
    bytesOf: (result) => (result === undefined ? 0 : bytes.body + Buffer.byteLength(result)),
    async ended(job, { leaves }) {
      if (job.bytes > 0) {
        endedHere.add(job.tenant);
        sinceBytes += bytes.record + job.bytes;
      }
      if (sinceBytes > bytesMax * EARLY_SHARE) loop.wake();
      await (leaves ? leave : note)(String(recoveryShard(job.jobId)), job);
    },
    shortage,
  };
}

function createDropNotes({
  metrics,
  clock,
  log,
  settings,
}: Pick<JobsParts, "metrics" | "clock" | "log" | "settings">): (count: number) => void {
  let dropped = 0;
  let loggedMs = Number.NEGATIVE_INFINITY;
  return (count) => {
    metrics.bodiesDropped(count);
    dropped += count;
    if (clock.monotonicMs() - loggedMs < LOG_INTERVAL_MS) return;
    log.info(
      { event: "jobs.bodies-dropped", count: dropped, bytesMax: settings.endedBytesMax },
      "dropped results and timelines of the oldest ended jobs to stay below jobs.ended_bytes_max",
    );
    loggedMs = clock.monotonicMs();
    dropped = 0;
  };
}

/** `share`: of one of several tenants, the jobs that it keeps. */
function shortageOf({
  room,
  limit,
  share,
  firstInMs = 0,
}: {
  room: number;
  limit: number;
  share: { tenant: string; own: number } | undefined;
  firstInMs: number | undefined;
}): Shortage | undefined {
  const retryAfterMs = Math.min(Math.max(firstInMs, RETRY_MS.min), RETRY_MS.max);
  const store = "the store of ended jobs";
  if (room <= 0) return { queue: store, limit, retryAfterMs };
  if (!share || share.own < SHARE_OF_ROOM * room) return undefined;
  return {
    queue: `the share of tenant ${share.tenant} in ${store}`,
    limit: share.own,
    retryAfterMs,
  };
}

const sum = (a: EndedFigures, b: EndedFigures): EndedFigures => ({
  jobs: a.jobs + b.jobs,
  units: a.units + b.units,
  firstInMs:
    a.firstInMs === undefined || (b.firstInMs !== undefined && b.firstInMs < a.firstInMs)
      ? b.firstInMs
      : a.firstInMs,
  tenants: sumOfTenants(a.tenants, b.tenants),
});

function sumOfTenants(
  a: EndedFigures["tenants"],
  b: EndedFigures["tenants"],
): EndedFigures["tenants"] {
  const sums = new Map(a);
  for (const [tenant, jobs] of b) sums.set(tenant, (sums.get(tenant) ?? 0) + jobs);
  return sums;
}
