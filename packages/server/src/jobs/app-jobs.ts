import { getHeapStatistics } from "node:v8";
import { ANY_TENANT } from "@tenure/protocol";
import { derived, type KnownTokens } from "../access/known-tokens.ts";
import type { AuthToken, Config } from "../config.ts";
import type { Delivery } from "../delivery/contract.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { PostgresStore } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Telemetry } from "../telemetry.ts";
import { createJobs, type Jobs } from "./jobs.ts";
import type { JobMetrics } from "./metrics.ts";
import type { JobsSettings } from "./parts.ts";
import { createJobRows } from "./rows/job-rows.ts";

export interface AppJobsOptions {
  config: Config;
  hot: HotStore;
  db: PostgresStore;
  instanceId: string;
  heartbeatIntervalMs: number;
  clock: Clock;
  random: Random;
  log: Log;
  telemetry: Telemetry;
  knownTokens: Pick<KnownTokens, "all">;
  delivery: Pick<Delivery, "send" | "sendIf" | "nowMs">;
  onStoreLost: () => void;
}

/** After so many missed heartbeats the slots of a node expire. */
const SLOT_HEARTBEATS = 3;

const REDIS_ENDED_BYTES = 3 * 2 ** 30;

/** Memory for ended jobs if it is not set. In memory mode they share the heap with everything else. */
const ENDED_BYTES_MAX: Record<HotStore["kind"], () => number> = {
  memory: () => Math.floor(getHeapStatistics().heap_size_limit * 0.4),
  redis: () => REDIS_ENDED_BYTES,
  "redis-cluster": () => REDIS_ENDED_BYTES,
};

/** Creates jobs from the settings, with their metrics. */
export function createAppJobs(options: AppJobsOptions): Jobs {
  const { config, heartbeatIntervalMs, telemetry } = options;
  return createJobs({
    ...options,
    rows: createJobRows(options.db),
    settings: {
      ...settingsOf(config, heartbeatIntervalMs, options.hot.kind),
      hasTenants: derived(options.knownTokens, (tokens) => tenantsOf(tokens).size > 1),
    },
    metrics: metricsOf(telemetry),
  });
}

function settingsOf(
  config: Config,
  heartbeatIntervalMs: number,
  kind: HotStore["kind"],
): Omit<JobsSettings, "hasTenants"> {
  const { jobs, job_timeout: timeout, model_not_available: storm, limits, scheduler } = config;
  return {
    retentionMs: jobs.retention_seconds * 1_000,
    endedMax: jobs.ended_max,
    endedBytesMax: jobs.ended_bytes_max || ENDED_BYTES_MAX[kind](),
    queueMax: jobs.queue_max,
    pendingTimeoutMs: timeout.pending_timeout_seconds * 1_000,
    ackTimeoutMs: timeout.ack_timeout_seconds * 1_000,
    runTimeoutMs: timeout.run_timeout_seconds * 1_000,
    attemptsMax: timeout.attempts_max,
    durableByDefault: true,
    slotTtlMs: SLOT_HEARTBEATS * heartbeatIntervalMs,
    payloadBytesMax: limits.payload_bytes,
    resultBytesMax: limits.result_bytes,
    affinityWaitMs: scheduler.affinity_wait_ms,
    sessionGoneAfterMs: scheduler.session_gone_after_seconds * 1_000,
    tenantJobsOpenMax: limits.tenant_jobs_open_max,
    tenantNeedsMax: limits.tenant_needs_max,
    tenantPayloadBytesMax: limits.tenant_payload_bytes_max,
    tenantSubmitsPerSecondMax: limits.tenant_submits_per_second_max,
    storm: {
      unavailableTtlMs: storm.unavailable_ttl_seconds * 1_000,
      debounceWindowMs: storm.debounce_window_seconds * 1_000,
      reportWindowMs: storm.node_ratelimit_window_seconds * 1_000,
      reportsMax: storm.node_ratelimit_max,
    },
  };
}

/** The tenants whose tokens can submit jobs. */
function tenantsOf(tokens: readonly AuthToken[]): ReadonlySet<string> {
  const submitters = tokens.filter(
    ({ role, tenant }) => (role === "session" || role === "admin") && tenant !== ANY_TENANT,
  );
  return new Set(submitters.map(({ tenant }) => tenant));
}

function metricsOf(telemetry: Telemetry): JobMetrics {
  return {
    submitted: (result) => telemetry.jobsSubmitted.inc({ result }),
    dispatched: (seconds) => telemetry.jobDispatchSeconds.observe(seconds),
    retried: (reason) => telemetry.jobRetries.inc({ reason }),
    finished(outcome, attempts) {
      telemetry.jobsFinished.inc({ outcome });
      telemetry.jobAttempts.observe(attempts);
    },
    reported: (kind, answer) => telemetry.jobReports.inc({ kind, answer }),
    rescued: (action) => telemetry.jobsRescued.inc({ action }),
    stormReported: (result) => telemetry.serviceReports.inc({ result }),
    affinity: (outcome) => telemetry.turnAffinity.inc({ outcome }),
    observed({ waiting, oldestWaitSeconds, live }) {
      telemetry.jobsWaiting.set(waiting);
      telemetry.jobQueueAgeSeconds.set(oldestWaitSeconds);
      telemetry.jobsLive.set(live);
    },
    ended({ jobs, bytes }) {
      telemetry.jobsEnded.set(jobs);
      telemetry.jobsEndedBytes.set(bytes);
    },
    bodiesDropped: (count) => telemetry.jobBodiesDropped.inc(count),
    slotsLeaked: (count) => telemetry.slotsLeaked.set(count),
    turnsLeft: (count) => telemetry.turnsLeft.set(count),
  };
}
