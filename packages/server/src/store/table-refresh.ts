import type { Clock } from "../kernel/clock.ts";
import { every, type Service } from "../kernel/service.ts";
import type { PostgresStore } from "./db.ts";

export interface TableRefreshOptions {
  db: Pick<PostgresStore, "listen">;
  /** Notified by a trigger of the table. */
  channel: string;
  intervalMs: number;
  /** How long the loop rests after a read although notifications arrive. A caller of `refresh` ends the rest. */
  restMs?: () => number;
  /** Reads the table. It may call `onReadable` as soon as what it read can be used; callers of `refresh` then go on. */
  read: (onReadable: () => void) => Promise<void>;
  onReadError: (error: unknown) => void;
  /** LISTEN failed: changes are seen at the next interval. */
  onListenError: (error: unknown) => void;
  clock: Clock;
}

export interface TableRefresh extends Service {
  /** Reads now. Resolves when a read that began after this call has ended, successfully or not. */
  refresh(): Promise<void>;
}

/** Reads a table again after each NOTIFY of a change, and every `intervalMs` in case a notification is lost. */
export function createTableRefresh(options: TableRefreshOptions): TableRefresh {
  const { db, channel, clock, restMs = () => 0 } = options;
  let waiting: (() => void)[] = [];
  let stopped = false;
  let rest = new AbortController();

  async function readOnce(): Promise<void> {
    const answered = waiting;
    waiting = [];
    const answer = () => {
      for (const resolve of answered.splice(0)) resolve();
    };
    rest = new AbortController();
    await options.read(answer).finally(answer);
    const ms = restMs();
    if (ms > 0 && waiting.length === 0 && !stopped) await clock.sleep(ms, rest.signal);
  }

  const loop = every(options.intervalMs, readOnce, { clock, onError: options.onReadError });
  return {
    refresh: () =>
      new Promise((resolve) => {
        if (stopped) return resolve();
        waiting.push(resolve);
        rest.abort();
        return loop.wake();
      }),
    start() {
      db.listen(channel, () => loop.wake()).catch(options.onListenError);
      loop.start();
    },
    async stop() {
      stopped = true;
      rest.abort();
      await loop.stop();
      for (const resolve of waiting.splice(0)) resolve();
    },
  };
}
