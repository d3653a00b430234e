import { badConfig } from "./bad-config.ts";
import { childTokens } from "./child-tokens.ts";
import { consoleScale } from "./console-scale.ts";
import { deploymentsPartition } from "./deployments-partition.ts";
import { deploymentsSpread } from "./deployments-spread.ts";
import { embeddedDurability } from "./embedded-durability.ts";
import { eventLoop } from "./event-loop.ts";
import { flood } from "./flood.ts";
import { fuzzFrames } from "./fuzz-frames.ts";
import { jobsAcross } from "./jobs-across.ts";
import { jobsCrashPoints } from "./jobs-crash-points.ts";
import { jobsKills } from "./jobs-kills.ts";
import { jobsPoison } from "./jobs-poison.ts";
import { jobsRedis } from "./jobs-redis.ts";
import { jobsRedispatch } from "./jobs-redispatch.ts";
import { jobsRestarts } from "./jobs-restarts.ts";
import { jobsSoak } from "./jobs-soak.ts";
import { jobsWaiting } from "./jobs-waiting.ts";
import { lostReply } from "./lost-reply.ts";
import { migrateTogether } from "./migrate-together.ts";
import * as noncesContention from "./nonces-contention.ts";
import type { Proof } from "./proof.ts";
import { reconnectStorm } from "./reconnect-storm.ts";
import { slowReader } from "./slow-reader.ts";
import { start } from "./start.ts";
import { storeOutage } from "./store-outage.ts";

export const PROOFS: readonly Proof[] = [
  start,
  embeddedDurability,
  eventLoop,
  migrateTogether,
  storeOutage,
  lostReply,
  badConfig,
  fuzzFrames,
  slowReader,
  flood,
  reconnectStorm,
  noncesContention,
  deploymentsSpread,
  deploymentsPartition,
  childTokens,
  jobsWaiting,
  jobsAcross,
  jobsCrashPoints,
  jobsKills,
  jobsPoison,
  jobsRedispatch,
  jobsRestarts,
  jobsSoak,
  jobsRedis,
  consoleScale,
];
