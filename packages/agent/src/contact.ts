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
  askForList,
  resume,
}: {
  clock: Clock;
  selfStopMs: number;
  suspend: (reason: string) => void;
  /** Contact is back. Whatever is known of the deployments is old: read them anew. */
  askForList: () => void;
  resume: () => void;
}): ContactWatch {
  let lastContactMs = 0;
  let suspended: "silent" | "back" | undefined;
  let cancel: Cancel = () => {};

  function watch(): void {
    cancel();
    const leftMs = lastContactMs + selfStopMs - clock.monotonicMs();
    cancel = clock.after(Math.max(0, leftMs), look);
  }

  function look(): void {
    // Timers may fire a moment early; only the clock decides.
    if (clock.monotonicMs() < lastContactMs + selfStopMs) watch();
    else if (suspended !== "silent") stopNow(`no contact for ${selfStopMs} ms`);
  }

  function stopNow(reason: string): void {
    suspended = "silent";
    suspend(reason);
  }

  return {
    start() {
      lastContactMs = clock.monotonicMs();
      watch();
    },
    contact(atMs) {
      lastContactMs = atMs;
      watch();
      // One that was on its way for so long that it is old news already is no contact.
      if (suspended !== "silent" || clock.monotonicMs() >= atMs + selfStopMs) return;
      suspended = "back";
      askForList();
    },
    replaced: (reason) => stopNow(reason),
    refreshed() {
      if (suspended !== "back") return;
      suspended = undefined;
      resume();
    },
    get isSuspended() {
      return suspended !== undefined;
    },
    stop: () => cancel(),
  };
}
