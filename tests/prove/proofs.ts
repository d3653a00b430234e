import { badConfig } from "./bad-config.ts";
import { consoleScale } from "./console-scale.ts";
import { deploymentsBadRows } from "./deployments-bad-rows.ts";
import { deploymentsChildren } from "./deployments-children.ts";
import { deploymentsInstances } from "./deployments-instances.ts";
import { deploymentsNone } from "./deployments-none.ts";
import { deploymentsPartition } from "./deployments-partition.ts";
import { deploymentsSpread } from "./deployments-spread.ts";
import { embeddedDurability } from "./embedded-durability.ts";
import { eventLoop } from "./event-loop.ts";
import { flood } from "./flood.ts";
import { fuzzFrames } from "./fuzz-frames.ts";
import { inbox } from "./inbox.ts";
import { jobsAcross } from "./jobs-across.ts";
import { jobsCrashPoints } from "./jobs-crash-points.ts";
import { jobsKills } from "./jobs-kills.ts";
import { jobsMovingSession } from "./jobs-moving-session.ts";
import { jobsOnce } from "./jobs-once.ts";
import { jobsPoison } from "./jobs-poison.ts";
import { jobsRedis } from "./jobs-redis.ts";
import { jobsRedispatch } from "./jobs-redispatch.ts";
import { jobsRestarts } from "./jobs-restarts.ts";
import { jobsSmoke } from "./jobs-smoke.ts";
import { jobsSoak } from "./jobs-soak.ts";
import { jobsWaiting } from "./jobs-waiting.ts";
import { lateClose } from "./late-close.ts";
import { lostReply } from "./lost-reply.ts";
import { migrateTogether } from "./migrate-together.ts";
import * as noncesContention from "./nonces-contention.ts";
import * as noncesFaults from "./nonces-faults.ts";
import * as noncesSigstop from "./nonces-sigstop.ts";
import type { Proof } from "./proof.ts";
import { reconnectStorm } from "./reconnect-storm.ts";
import { rollingRestart } from "./rolling-restart.ts";
import { slowReader } from "./slow-reader.ts";
import { start } from "./start.ts";
import { storeOutage } from "./store-outage.ts";
import { turns } from "./turns.ts";

export const PROOFS: readonly Proof[] = [
  start,
  embeddedDurability,
  eventLoop,
  migrateTogether,
  storeOutage,
  lostReply,
  badConfig,
  rollingRestart,
  lateClose,
  fuzzFrames,
  slowReader,
  flood,
  reconnectStorm,
  inbox,
  noncesContention,
  noncesSigstop,
  noncesFaults,
  deploymentsSpread,
  deploymentsNone,
  deploymentsBadRows,
  deploymentsInstances,
  deploymentsPartition,
  deploymentsChildren,
  jobsSmoke,
  jobsWaiting,
  jobsAcross,
  jobsOnce,
  jobsCrashPoints,
  jobsKills,
  jobsMovingSession,
  jobsPoison,
  jobsRedispatch,
  jobsRestarts,
  jobsSoak,
  jobsRedis,
  turns,
  consoleScale,
];
