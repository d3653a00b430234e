import type { Delivery } from "../delivery/contract.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { SessionNotifier } from "./flow/session-notifier.ts";
import type { StoreClock } from "./flow/store-clock.ts";
import type { JobTracing } from "./flow/tracing.ts";
import type { Connections } from "./memory/connections.ts";
import type { NodePool } from "./memory/node-pool.ts";
import type { TrackedJobs } from "./memory/tracked-jobs.ts";
import type { JobMetrics } from "./metrics.ts";
import type { JobRows } from "./rows/job-rows.ts";

export interface JobsSettings {
  retentionMs: number;
  /** Ended jobs to keep, and the memory for them. */
  endedMax: number;
  endedBytesMax: number;
  /** Jobs may come from more than one tenant, so that each gets a share of what is kept. */
  hasTenants: () => boolean;
  /** Jobs of one tenant that may wait in one pool. */
  queueMax: number;
  pendingTimeoutMs: number;
  ackTimeoutMs: number;
  runTimeoutMs: number;
  attemptsMax: number;
  /** Jobs without a session are durable unless their caller asks otherwise. */
  durableByDefault: boolean;
  /** Three heartbeats. */
  slotTtlMs: number;
  payloadBytesMax: number;
  resultBytesMax: number;
  affinityWaitMs: number;
  sessionGoneAfterMs: number;
  tenantJobsOpenMax: number;
  /** Different needs with which jobs of one tenant may wait here. */
  tenantNeedsMax: number;
  /** Bytes of the payloads of one tenant's tracked jobs; 0 = no limit. */
  tenantPayloadBytesMax: number;
  tenantSubmitsPerSecondMax: number;
  storm: {
    unavailableTtlMs: number;
    debounceWindowMs: number;
    reportWindowMs: number;
    reportsMax: number;
  };
}

/** What the flow files share. Each of them names the members it uses, with `Pick`. */
export interface JobsParts {
  hot: HotStore;
  rows: JobRows;
  instanceId: string;
  settings: JobsSettings;
  clock: Clock;
  random: Random;
  log: Log;
  metrics: JobMetrics;
  tracing: JobTracing;
  tracked: TrackedJobs;
  nodePool: NodePool;
  connections: Connections;
  notifier: SessionNotifier;
  storeClock: StoreClock;
  /** Sends a message to another instance. */
  send: Delivery["send"];
  /** Sends it on conditions. */
  sendIf: Delivery["sendIf"];
}
