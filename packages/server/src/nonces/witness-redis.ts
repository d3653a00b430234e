import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { HotStore } from "../store/hot-store.ts";
import { noteWitness } from "./store/witness-store.ts";
import type { Witness } from "./witness.ts";

const WAIT_MS_MAX = 250;

/**
 * The witness all instances share. A number waits for it while Redis answers. While Redis is away numbers are given
 * out without it, because they need nothing but Postgres; this process remembers the position meanwhile.
 */
export function openRedisWitness(options: { hot: HotStore; clock: Clock; log: Log }): Witness {
  const { hot, clock, log } = options;
  let isBehind = false;

  function fallBehind(error: unknown): void {
    if (!isBehind)
      log.warn(
        { event: "witness.behind", error },
        "Redis does not take the position of nonces; they are given out without it until it does",
      );
    isBehind = true;
  }

  return {
    name: "redis",
    read: () => noteWitness(hot),
    async write(position) {
      const noted = new AbortController();
      const writing = noteWitness(hot, position)
        .then(() => {
          isBehind = false;
        }, fallBehind)
        .finally(() => noted.abort());
      if (isBehind) return;
      const limit = clock.sleep(WAIT_MS_MAX, noted.signal).then(() => {
        if (!noted.signal.aborted) fallBehind(new Error(`no answer within ${WAIT_MS_MAX} ms`));
      });
      await Promise.race([writing, limit]);
    },
  };
}
