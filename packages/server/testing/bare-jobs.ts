import { createJobs, type Jobs, type JobsOptions } from "../src/jobs/jobs.ts";
import type { JobMetrics } from "../src/jobs/metrics.ts";
import type { JobsSettings } from "../src/jobs/parts.ts";
import type { JobRows } from "../src/jobs/rows/job-rows.ts";
import { type Clock, systemClock } from "../src/kernel/clock.ts";
import { silentLog } from "../src/kernel/log.ts";
import { systemRandom } from "../src/kernel/random.ts";
import type { HotStore } from "../src/store/hot-store.ts";
import { NO_ROWS } from "./no-rows.ts";

const SETTINGS: JobsSettings = {
  retentionMs: 3_600_000,
  endedMax: 2_000_000,
  endedBytesMax: 2 ** 30,
  hasTenants: () => false,
  queueMax: 10_000,
  pendingTimeoutMs: 10_000,
  ackTimeoutMs: 5_000,
  runTimeoutMs: 30_000,
  attemptsMax: 3,
  durableByDefault: false,
  slotTtlMs: 15_000,
  payloadBytesMax: 262_144,
  resultBytesMax: 262_144,
  affinityWaitMs: 1_000,
  sessionGoneAfterMs: 600_000,
  tenantJobsOpenMax: 0,
  tenantNeedsMax: 10_000,
  tenantPayloadBytesMax: 0,
  tenantSubmitsPerSecondMax: 0,
  storm: {
    unavailableTtlMs: 60_000,
    debounceWindowMs: 5_000,
    reportWindowMs: 10_000,
    reportsMax: 30,
  },
};

const SILENT_METRICS: JobMetrics = {
  submitted() {},
  dispatched() {},
  retried() {},
  finished() {},
  reported() {},
  rescued() {},
  stormReported() {},
  affinity() {},
  observed() {},
  ended() {},
  bodiesDropped() {},
  slotsLeaked() {},
  turnsLeft() {},
};

/** Jobs of one instance over a hot store, without sockets and without a database. Nothing runs until `start`. */
export function openBareJobs(
  hot: HotStore,
  {
    instanceId = "i1",
    settings = {},
    clock = systemClock,
    rows = NO_ROWS,
    metrics = {},
    delivery = {
      send: async () => ({ outcome: "sent", id: "1" }),
      sendIf: async () => ({ outcome: "skipped" }),
      nowMs: async () => clock.wallMs(),
    },
  }: {
    instanceId?: string;
    settings?: Partial<JobsSettings>;
    clock?: Clock;
    rows?: JobRows;
    metrics?: Partial<JobMetrics>;
    delivery?: JobsOptions["delivery"];
  } = {},
): Jobs {
  return createJobs({
    hot,
    rows,
    db: { listen: async () => {} },
    instanceId,
    settings: { ...SETTINGS, ...settings },
    clock,
    random: systemRandom,
    log: silentLog,
    metrics: { ...SILENT_METRICS, ...metrics },
    delivery,
    onStoreLost: () => {},
  });
}
