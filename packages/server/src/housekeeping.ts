import type { ConsoleSessions } from "./access/console-sessions.ts";
import { forgetEndedTokens } from "./access/token-store.ts";
import type { Audit } from "./audit/audit.ts";
import type { Config } from "./config.ts";
import { forgetEndedRows } from "./jobs/rows/row-retention.ts";
import type { Clock } from "./kernel/clock.ts";
import type { Log } from "./kernel/log.ts";
import { every, type Service } from "./kernel/service.ts";
import { forgetGoneMembers } from "./membership/retention.ts";
import type { Db } from "./store/db.ts";
import { forgetOldEvents } from "./store/event-store.ts";

export interface HousekeepingOptions {
  config: Config;
  db: Db;
  clock: Clock;
  log: Log;
  deployments: { forgetOld(): Promise<void> };
  consoleSessions: Pick<ConsoleSessions, "forgetEnded">;
  audit: Pick<Audit, "forgetOld">;
}

const INTERVAL_MS = 3_600_000;

/** Deletes every hour what is kept for a limited time. */
export function createHousekeeping(options: HousekeepingOptions): Service {
  const { db, clock, log } = options;
  const clean = async () => {
    await forgetGoneMembers(options);
    await forgetOldEvents(db);
    await options.deployments.forgetOld();
    await options.consoleSessions.forgetEnded();
    await options.audit.forgetOld();
    await forgetEndedTokens(db);
    await forgetEndedRows(db, options.config.jobs.history_days);
  };
  return every(INTERVAL_MS, clean, {
    clock,
    onError: (error) =>
      log.warn({ event: "housekeeping.failed", error }, "could not delete old rows; will retry"),
  });
}
