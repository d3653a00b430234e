import { isTenureError } from "@tenure/protocol";
import type { Delivery } from "../delivery/contract.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Telling } from "./flow/session-notifier.ts";
import type { Elsewhere } from "./flow/slot-handover.ts";
import type { JobTracing } from "./flow/tracing.ts";
import type { Links } from "./memory/connections.ts";
import type { Deadlines } from "./memory/deadlines.ts";
import type { Roster } from "./memory/node-pool.ts";
import type { Book, LiveJob } from "./memory/tracked-jobs.ts";
import type { WaitingRoom } from "./memory/wait-queue.ts";
import type { JobMeter } from "./meter.ts";

export interface JobsSettings {
  retentionMs: number;
  /** Ended jobs that may be kept, and the memory for them. */
  endedMax: number;
  endedBytesMax: number;
  /** Jobs that may wait in one pool. */
  queueMax: number;
  pendingTimeoutMs: number;
  ackTimeoutMs: number;
  runTimeoutMs: number;
  attemptsMax: number;
  /** Three heartbeats. */
  slotTtlMs: number;
  payloadBytesMax: number;
  resultBytesMax: number;
  affinityWaitMs: number;
  sessionGoneAfterMs: number;
  tenantJobsOpenMax: number;
  /** Different needs with which jobs of one tenant may wait here. */
  tenantNeedsMax: number;
  /** Bytes of the payloads of one tenant's jobs in hand; 0 = no limit. */
  tenantPayloadBytesMax: number;
  tenantSubmitsPerSecondMax: number;
  storm: {
    unavailableTtlMs: number;
    debounceWindowMs: number;
    reportWindowMs: number;
    reportsMax: number;
  };
}

/** What every part of jobs works with. */
export interface JobsContext {
  hot: HotStore;
  instanceId: string;
  settings: JobsSettings;
  clock: Clock;
  random: Random;
  log: Log;
  meter: JobMeter;
  tracing: JobTracing;
  book: Book;
  roster: Roster;
  links: Links;
  waiting: WaitingRoom<LiveJob>;
  elsewhere: Elsewhere;
  deadlines: Deadlines;
  telling: Telling;
  ring: Ring;
  trouble: StoreTrouble;
  /** The store's time as far as it is known here: for the deadlines of messages, which are generous. */
  storeNowMs(): number;
}

export type Ring = Delivery["send"];

/** When the store was last found away, by the monotonic clock; `-Infinity` when it never was. */
export interface StoreTrouble {
  atMs(): number;
}

/** The store is away: nobody knows what became of the call. The due index, or the next try, will find out. */
export const isStoreDown = (error: unknown): boolean => isTenureError(error, "DEPENDENCY_DOWN");
