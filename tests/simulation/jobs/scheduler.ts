import type { NodeView, ServerToNode, ServerToSession } from "@tenure/protocol";
import type { Delivery } from "../../../packages/server/src/delivery/contract.ts";
import type { Jobs } from "../../../packages/server/src/jobs/jobs.ts";
import type { JobMetrics } from "../../../packages/server/src/jobs/metrics.ts";
import type { JobsSettings } from "../../../packages/server/src/jobs/parts.ts";
import type { Log } from "../../../packages/server/src/kernel/log.ts";
import { holds } from "../../../packages/server/src/store/call.ts";
import type { HotStore } from "../../../packages/server/src/store/hot-store.ts";
import { NO_ROWS } from "../../../packages/server/testing/no-rows.ts";
import type { Chance } from "../chance.ts";
import type { Timeline } from "../timeline.ts";
import type { Bus } from "./bus.ts";
import type { ServerParts } from "./parts.ts";
import { type SharedStore, serverClock } from "./store.ts";

export interface Scheduler {
  readonly id: string;
  readonly isAlive: boolean;
  readonly jobs: Jobs;
  readonly hot: HotStore;
  kill(): void;
}

/** A connection, as one end of it sees it. */
export interface End<Message> {
  readonly epoch: number;
  hear(message: Message): void;
  /** The instance is gone. */
  closed(): void;
}
export type NodeEnd = End<ServerToNode>;
export type SessionEnd = End<ServerToSession>;

export const JOBS_SETTINGS: JobsSettings = {
  retentionMs: 3_600_000,
  endedMax: 2_000_000,
  endedBytesMax: 2 ** 30,
  hasTenants: () => false,
  queueMax: 1_000,
  pendingTimeoutMs: 8_000,
  ackTimeoutMs: 3_000,
  runTimeoutMs: 6_000,
  attemptsMax: 3,
  durableByDefault: false,
  slotTtlMs: 9_000,
  payloadBytesMax: 10_000,
  resultBytesMax: 10_000,
  affinityWaitMs: 1_000,
  sessionGoneAfterMs: 600_000,
  tenantJobsOpenMax: 10_000,
  tenantNeedsMax: 10_000,
  tenantPayloadBytesMax: 0,
  tenantSubmitsPerSecondMax: 10_000,
  storm: {
    unavailableTtlMs: 10_000,
    debounceWindowMs: 5_000,
    reportWindowMs: 10_000,
    reportsMax: 30,
  },
};

/** One instance: the jobs of the server, whole. Killed, nothing of it goes on, wherever it was. */
export function createScheduler({
  id,
  parts,
  timeline,
  chance,
  store,
  bus,
  fleet,
  refreshMs,
  problem,
}: {
  id: string;
  parts: ServerParts;
  timeline: Timeline;
  chance: Chance;
  store: SharedStore;
  bus: Bus;
  fleet: () => NodeView[];
  refreshMs: number;
  problem: (event: string, fields: unknown) => void;
}): Scheduler {
  let isAlive = true;
  const clock = serverClock(timeline, () => isAlive);
  const hot = store.open(() => isAlive);
  const send: Delivery["send"] = async (to, message) => {
    await clock.sleep(chance.between(0.3, 3));
    bus.send(scheduler, to, message);
    return { outcome: "sent", id: "1" };
  };
  const jobs = parts.createJobs({
    hot,
    rows: NO_ROWS,
    db: { listen: async () => {} },
    onStoreLost: () => {},
    instanceId: id,
    settings: JOBS_SETTINGS,
    clock,
    random: {
      fraction: chance.fraction,
      bytes: (count) => Buffer.from(Array.from({ length: count }, () => chance.fraction() * 256)),
    },
    log: logOf(problem),
    metrics: SILENT,
    delivery: {
      send,
      // As where no call can depend on another: the message is sent by the next call.
      async sendIf(conditions, to, message) {
        await Promise.allSettled(conditions.map(({ call }) => call.reply));
        if (!isAlive || !conditions.every(holds)) return { outcome: "skipped" };
        return send(to, message);
      },
      async nowMs() {
        await clock.sleep(chance.between(0.3, 3));
        return Math.floor(clock.wallMs());
      },
    },
  });

  function refresh(): void {
    if (!isAlive) return;
    jobs.fleetSeen(fleet());
    timeline.after(refreshMs, refresh);
  }

  const scheduler: Scheduler = {
    id,
    get isAlive() {
      return isAlive;
    },
    jobs,
    hot,
    kill() {
      isAlive = false;
    },
  };
  jobs.start();
  refresh();
  return scheduler;
}

/** An error in the log of jobs is a bug: what may happen is handled, and what is not is told. */
function logOf(problem: (event: string, fields: unknown) => void): Log {
  const log: Log = {
    debug() {},
    info() {},
    warn() {},
    error: (fields) => problem(fields.event, fields.error),
    child: () => log,
  };
  return log;
}

const SILENT = new Proxy({} as JobMetrics, { get: () => () => {} });
