import { type DeploymentReport, type ErrorCode, TenureError } from "@tenure/protocol";
import type { Cancel, Clock } from "@tenure/sdk";

/**
 * Sends the newest state of every deployment to the server, and retries until it is acknowledged.
 *
 * Invariants: at most one call per deployment is in flight, so an older state never arrives after a newer one; `pending`
 * has the newest report of each deployment that is not acknowledged.
 */
export interface Reports {
  /** Replaces the pending report of the same deployment. */
  put(report: DeploymentReport): void;
  /** Sends all pending reports over a new connection. */
  connected(): void;
  /** Resolves with true when every report is acknowledged, with false after `limitMs`. */
  flush(limitMs: number): Promise<boolean>;
  stop(): void;
}

const IN_FLIGHT_MAX = 16;
const RETRY_MS = 1_000;
/** Errors that a retry cannot change. */
const FINAL: ReadonlySet<ErrorCode> = new Set([
  "FENCED",
  "NOT_FOUND",
  "INVALID_MESSAGE",
  "INVALID_REQUEST",
  "FORBIDDEN",
]);

export function createReports({
  clock,
  send,
  refused,
}: {
  clock: Clock;
  send: (report: DeploymentReport) => Promise<unknown>;
  /** Called when the server will never accept a report: its generation is over, or the row was deleted. */
  refused: (report: DeploymentReport, error: TenureError) => void;
}): Reports {
  const pending = new Map<string, DeploymentReport>();
  const inFlight = new Set<string>();
  let flushing: Array<() => void> = [];
  let cancelRetry: Cancel | undefined;
  let isStopped = false;

  function sendPending(): void {
    for (const [id, report] of pending) {
      if (isStopped || inFlight.size >= IN_FLIGHT_MAX) return;
      if (!inFlight.has(id)) void sendOne(id, report);
    }
    if (pending.size > 0) return;
    for (const resolve of flushing.splice(0)) resolve();
  }

  async function sendOne(id: string, report: DeploymentReport): Promise<void> {
    inFlight.add(id);
    const error = await send(report).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    inFlight.delete(id);
    const isFinal = error instanceof TenureError && FINAL.has(error.code);
    const isNewest = pending.get(id) === report;
    if (isNewest && (error === undefined || isFinal)) pending.delete(id);
    if (isFinal) refused(report, error as TenureError);
    if (error === undefined || isFinal) sendPending();
    else retryLater();
  }

  function retryLater(): void {
    if (cancelRetry || isStopped) return;
    cancelRetry = clock.after(RETRY_MS, () => {
      cancelRetry = undefined;
      sendPending();
    });
  }

  return {
    put(report) {
      const id = report.deployment_id;
      const former = pending.get(id);
      // Within a generation an absent field keeps its value, also when the report that had it was not acknowledged.
      const merged = former?.generation === report.generation ? { ...former, ...report } : report;
      pending.delete(id);
      pending.set(id, merged);
      sendPending();
    },
    connected() {
      cancelRetry?.();
      cancelRetry = undefined;
      sendPending();
    },
    async flush(limitMs) {
      if (pending.size === 0) return true;
      let cancel: Cancel = () => {};
      await new Promise<void>((resolve) => {
        flushing.push(resolve);
        cancel = clock.after(limitMs, resolve);
      });
      cancel();
      return pending.size === 0;
    },
    stop() {
      isStopped = true;
      cancelRetry?.();
      for (const resolve of flushing.splice(0)) resolve();
      flushing = [];
    },
  };
}
