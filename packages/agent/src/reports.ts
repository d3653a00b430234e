import { type DeploymentReport, type ErrorCode, TenureError } from "@tenure/protocol";
import type { Cancel, Clock } from "@tenure/sdk";

export interface Reports {
  /** Takes the place of what was to be said of the same deployment. */
  put(report: DeploymentReport): void;
  /** There is a connection: say what has not been heard yet. */
  connected(): void;
  /** Whether everything was heard within the limit. */
  settled(limitMs: number): Promise<boolean>;
  stop(): void;
}

const IN_FLIGHT_MAX = 16;
const AGAIN_MS = 1_000;
/** Saying it again changes nothing. */
const FINAL: ReadonlySet<ErrorCode> = new Set([
  "FENCED",
  "NOT_FOUND",
  "INVALID_MESSAGE",
  "INVALID_REQUEST",
  "FORBIDDEN",
]);

/**
 * Brings the newest state of every deployment to the server: one call at a time per deployment, so that an older state
 * never arrives after a newer one, and again until it was heard.
 */
export function createReports({
  clock,
  send,
  refused,
}: {
  clock: Clock;
  send: (report: DeploymentReport) => Promise<unknown>;
  /** The server will never take it: the term is over, or the row is gone. */
  refused: (report: DeploymentReport, error: TenureError) => void;
}): Reports {
  const unheard = new Map<string, DeploymentReport>();
  const inFlight = new Set<string>();
  let waiting: Array<() => void> = [];
  let again: Cancel | undefined;
  let stopped = false;

  function pump(): void {
    for (const [id, report] of unheard) {
      if (stopped || inFlight.size >= IN_FLIGHT_MAX) return;
      if (!inFlight.has(id)) void say(id, report);
    }
    if (unheard.size > 0) return;
    for (const resolve of waiting.splice(0)) resolve();
  }

  async function say(id: string, report: DeploymentReport): Promise<void> {
    inFlight.add(id);
    const error = await send(report).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    inFlight.delete(id);
    const isFinal = error instanceof TenureError && FINAL.has(error.code);
    const isNewest = unheard.get(id) === report;
    if (isNewest && (error === undefined || isFinal)) unheard.delete(id);
    if (isFinal) refused(report, error as TenureError);
    if (error === undefined || isFinal) pump();
    else later();
  }

  function later(): void {
    if (again || stopped) return;
    again = clock.after(AGAIN_MS, () => {
      again = undefined;
      pump();
    });
  }

  return {
    put(report) {
      const id = report.deployment_id;
      const former = unheard.get(id);
      // Within a term a field that is left out keeps its value, also when the report that had it was not heard.
      const merged = former?.generation === report.generation ? { ...former, ...report } : report;
      unheard.delete(id);
      unheard.set(id, merged);
      pump();
    },
    connected() {
      again?.();
      again = undefined;
      pump();
    },
    async settled(limitMs) {
      if (unheard.size === 0) return true;
      let cancel: Cancel = () => {};
      await new Promise<void>((resolve) => {
        waiting.push(resolve);
        cancel = clock.after(limitMs, resolve);
      });
      cancel();
      return unheard.size === 0;
    },
    stop() {
      stopped = true;
      again?.();
      for (const resolve of waiting.splice(0)) resolve();
      waiting = [];
    },
  };
}
