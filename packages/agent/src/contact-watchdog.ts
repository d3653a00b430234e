import type { Cancel, Clock } from "@tenure/sdk";

/**
 * Decides when this node must stop its deployments because other nodes may believe it lost, and when it may resume.
 *
 * Invariants: silence counts from the send time of the last heartbeat that was acknowledged, so a slow answer shortens the
 * trust in the lease and never extends it. States: contact → `silent` (deployments stop) → `back` (contact again, the list
 * is read) → contact. Only a list read in state `back` resumes.
 */
export interface ContactWatchdog {
  start(): void;
  /** Records that Postgres has this node's presence as of `atMs`. */
  contact(atMs: number): void;
  /** Records that another process has this node's address. */
  replaced(reason: string): void;
  /** Records that the list was read after the last contact: its deployments may run. */
  refreshed(): void;
  readonly isSuspended: boolean;
  /** Final: heartbeats are still acknowledged while the children stop, and must not restart the timer. */
  stop(): void;
}

export function createContactWatchdog({
  clock,
  selfStopMs,
  suspend,
  nextStopMs,
  refresh,
  resume,
}: {
  clock: Clock;
  selfStopMs: number;
  /** Stops the deployments that may not run after so much silence. */
  suspend: (reason: string, silentMs: number) => void;
  /** The next longer silence after which more deployments must stop. */
  nextStopMs: (silentMs: number) => number | undefined;
  /** Requests a new list: after an outage the present one is old. */
  refresh: () => void;
  resume: () => void;
}): ContactWatchdog {
  let lastContactMs = 0;
  let suspended: "silent" | "back" | undefined;
  let cancel: Cancel = () => {};
  let stopped = false;

  function watch(): void {
    cancel();
    checkAfter(lastContactMs + selfStopMs - clock.monotonicMs());
  }

  /** At least 1 ms: a remainder below the clock's resolution would be scheduled again and again. */
  function checkAfter(ms: number): void {
    cancel = clock.after(Math.max(1, ms), check);
  }

  function check(): void {
    // Timers may fire early, so the clock decides.
    const silentMs = clock.monotonicMs() - lastContactMs;
    if (silentMs < selfStopMs) {
      watch();
      return;
    }
    suspended = "silent";
    suspend(`no contact for ${selfStopMs} ms`, silentMs);
    const nextMs = nextStopMs(silentMs);
    if (nextMs !== undefined) checkAfter(nextMs - silentMs);
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
      // An acknowledgement that was delayed for longer than `selfStopMs` is no contact.
      if (suspended !== "silent" || clock.monotonicMs() >= atMs + selfStopMs) return;
      suspended = "back";
      refresh();
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
