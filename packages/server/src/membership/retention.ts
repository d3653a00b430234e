import type { Config } from "../config.ts";
import type { Log } from "../kernel/log.ts";
import type { Db } from "../store/db.ts";
import { forgetDeadInstances } from "./store/instance-store.ts";
import { forgetNodeUnits, retireLostUnits } from "./store/node-unit-store.ts";

/** Deletes the rows of dead instances and, after `membership.forget_after_days`, of node-units that are gone. */
export async function forgetGoneMembers({
  config,
  db,
  log,
}: {
  config: Config;
  db: Db;
  log: Log;
}): Promise<void> {
  const { forget_after_days: days } = config.membership;
  await forgetDeadInstances(db);
  await retireLostUnits(db);
  const count = days > 0 ? await forgetNodeUnits(db, days) : 0;
  if (count > 0)
    log.info({ event: "node-units.forgotten", count }, "deleted node-units that are gone for long");
}
