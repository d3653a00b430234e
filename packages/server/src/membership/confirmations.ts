import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Service } from "../kernel/service.ts";
import type { PostgresStore } from "../store/db.ts";
import { createTableRefresh } from "../store/table-refresh.ts";
import { markConfirmed, readNow } from "./store/confirmation-store.ts";

const CHANNEL = "tenure_confirm";
/** A round also runs without a request, so that `confirmed_at` of a working instance is never old. */
const ROUND_EVERY_MS = 60_000;

export interface ConfirmationsOptions {
  instanceId: string;
  db: PostgresStore;
  /** Pings the node-units connected here and renews those that answer. */
  confirm: () => Promise<void>;
  clock: Clock;
  log: Log;
}

/**
 * Pings the node-units of this instance when any instance requests it: after a silent loss, and before a new process takes
 * the address of a former one. Requests during a round cause one more round.
 */
export function createConfirmations(options: ConfirmationsOptions): Service {
  const { instanceId, db, clock, log } = options;

  async function confirm(): Promise<void> {
    const startedAt = await readNow(db);
    await options.confirm();
    await markConfirmed(db, instanceId, startedAt);
  }

  return createTableRefresh({
    ...{ db, clock, channel: CHANNEL, intervalMs: ROUND_EVERY_MS, read: confirm },
    onReadError: (error) =>
      log.warn(
        { event: "members.not-confirmed", error },
        "could not write which node-units answer; a release waits up to 5 s longer",
      ),
    onListenError: (error) =>
      log.warn(
        { event: "members.not-asked", error },
        "could not listen for requests to confirm node-units; releases after a silent loss wait up to 5 s longer",
      ),
  });
}
