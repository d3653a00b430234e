import type { Cancel, Clock } from "@tenure/sdk";

export interface ContactWatch {
  start(): void;
  /** Presence is in Postgres, as of this moment. */
  contact(atMs: number): void;
  /** Another process has this node's address. */
  replaced(reason: string): void;
  /** A list was read after the last contact: what it says may run. */
  refreshed(): void;
  readonly isSuspended: boolean;
  /** For good: heartbeats are still acknowledged while the children stop, and must not arm the timer again. */
  stop(): void;
}

/**
 * Decides when this node must stop its deployments because others may believe it lost, and when it may go on. Silence
 * counts from the last contact's send time: a slow answer shortens our trust and never stretches it.
 */
export function createContactWatch({
  clock,
  selfStopMs,
  suspend,
  nextStopMs,
  askForList,
  resume,
}: {
  clock: Clock;
  selfStopMs: number;
  /** Stops what must not go on after so much silence. */
  suspend: (reason: string, silentMs: number) => void;
  /** The next longer silence after which more must be stopped. */
  nextStopMs: (silentMs: number) => number | undefined;
  /** Contact is back. Whatever is known of the deployments is old: read them anew. */
  askForList: () => void;
  resume: () => void;
}): ContactWatch {
  let lastContactMs = 0;
  let suspended: "silent" | "back" | undefined;
  let cancel: Cancel = () => {};
  let stopped = false;

  function watch(): void {
    cancel();
    lookIn(lastContactMs + selfStopMs - clock.monotonicMs());
  }

  /** Never at once: a rest smaller than the clock can count would be waited for again and again. */
  function lookIn(ms: number): void {
    cancel = clock.after(Math.max(1, ms), look);
  }

  function look(): void {
    // Timers may fire a moment early; only the clock decides.
    const silentMs = clock.monotonicMs() - lastContactMs;
    if (silentMs < selfStopMs) {
      watch();
      return;
    }
    suspended = "silent";
    suspend(`no contact for ${selfStopMs} ms`, silentMs);
    const nextMs = nextStopMs(silentMs);
    if (nextMs !== undefined) lookIn(nextMs - silentMs);
  }

  return {
    start() {
      lastContactMs = clock.monotonicMs();
      watch();
    },
    contact(atMs) {
      if (stopped) return;
      lastContactMs = atMs;
      watch();
      // One that was on its way for so long that it is old news already is no contact.
      if (suspended !== "silent" || clock.monotonicMs() >= atMs + selfStopMs) return;
      suspended = "back";
      askForList();
    },
    replaced(reason) {
      suspended = "silent";
      suspend(reason, Number.POSITIVE_INFINITY);
    },
    refreshed() {
      if (stopped || suspended !== "back") return;
      suspended = undefined;
      resume();
    },
    get isSuspended() {
      return suspended !== undefined;
    },
    stop() {
      stopped = true;
      cancel();
    },
  };
}
