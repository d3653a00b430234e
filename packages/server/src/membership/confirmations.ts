import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import type { PostgresStore } from "../store/db.ts";
import { markConfirmed, readNow } from "./store/confirmation-store.ts";

const CHANNEL = "tenure_confirm";
/** A round also runs by itself now and then, so that `confirmed_at` of an instance that works is never old. */
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
 * Finds out which node-units are there whenever an instance asks all others for it: after a silent loss, and before a new
 * process takes the address of a former one. Requests during a round are answered by one more round.
 */
export function createConfirmations(options: ConfirmationsOptions): Service {
  const { instanceId, db, clock, log } = options;

  async function round(): Promise<void> {
    const startedAt = await readNow(db);
    await options.confirm();
    await markConfirmed(db, instanceId, startedAt);
  }

  const rounds = every(ROUND_EVERY_MS, round, {
    clock,
    onError: (error) =>
      log.warn(
        { event: "members.not-confirmed", error },
        "could not write which node-units answer; a release waits up to 5 s longer",
      ),
  });

  return {
    start() {
      db.listen(CHANNEL, () => rounds.wake()).catch((error) =>
        log.warn(
          { event: "members.not-asked", error },
          "cannot listen for requests to confirm node-units; releases after a silent loss wait up to 5 s longer",
        ),
      );
      rounds.start();
    },
    stop: () => rounds.stop(),
  };
}
