import { badConfig } from "./bad-config.ts";
import { embeddedDurability } from "./embedded-durability.ts";
import { eventLoop } from "./event-loop.ts";
import { lostReply } from "./lost-reply.ts";
import { migrateTogether } from "./migrate-together.ts";
import type { Proof } from "./proof.ts";
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
];
