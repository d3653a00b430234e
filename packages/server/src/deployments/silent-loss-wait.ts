import type { Clock } from "../kernel/clock.ts";
import { areMembersRenewed, type Moment } from "../membership/store/confirmation-store.ts";
import type { Db } from "../store/db.ts";

const POLL_MS = 100;
/** The release statement waits 5 s at most; the rest is for a slow Postgres. */
const LIMIT_MS = 10_000;

/**
 * Waits after a silent loss until every other node-unit has answered, then calls `wake`, so that the nodes request the
 * release at once and not at their next pass. A later loss extends the wait.
 */
export function createSilentLossWait({
  db,
  clock,
  wake,
}: {
  db: Db;
  clock: Clock;
  wake: () => void;
}): (since: Moment) => Promise<void> {
  let waitsSince: Moment;
  let isWaiting = false;

  return async (since) => {
    waitsSince = since;
    if (isWaiting) return;
    isWaiting = true;
    const giveUpAtMs = clock.monotonicMs() + LIMIT_MS;
    try {
      while (!(await areMembersRenewed(db, waitsSince)) && clock.monotonicMs() < giveUpAtMs)
        await clock.sleep(POLL_MS);
      wake();
    } catch {
      // Postgres is down; the next pass of a node requests the release again.
    } finally {
      isWaiting = false;
    }
  };
}
