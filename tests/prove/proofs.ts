import { badConfig } from "./bad-config.ts";
import { deploymentsSpread } from "./deployments-spread.ts";
import { embeddedDurability } from "./embedded-durability.ts";
import { eventLoop } from "./event-loop.ts";
import { fuzzFrames } from "./fuzz-frames.ts";
import { inbox } from "./inbox.ts";
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
  reconnectStorm,
  inbox,
  noncesContention,
  noncesSigstop,
  noncesFaults,
  deploymentsSpread,
];
