import { TenureError } from "@tenure/protocol";
import type { Cancel } from "@tenure/sdk";
import { jitteredMs, retryMs, spreadMs } from "./backoff.ts";
import type { DeploymentCache } from "./deployment-cache.ts";
import type { LoopPorts } from "./loop-ports.ts";
import { createPasses, type LoopCounts, type PassOptions, type PassOutcome } from "./pass.ts";

export interface Loop {
  start(): void;
  /** Runs a pass soon, because something may have changed. The delay is random and grows with the fleet. */
  wake(): void;
  /** Makes the next pass read the whole list. */
  invalidate(): void;
  readonly counts: Readonly<LoopCounts>;
  /** Starts no further pass. Resolves when the present one has ended. */
  stop(): Promise<void>;
}

/**
 * Runs passes one at a time: at jittered intervals, soon after a wake-up, and at once after a claim. Wake-ups during a
 * pass lead to at most one more pass.
 *
 * `cache`: replaced in a simulation whose nodes are too many for a list each.
 */
export function createLoop(ports: LoopPorts, options: PassOptions, cache?: DeploymentCache): Loop {
  const { clock, random, log } = ports;
  const { intervalMs } = options;
  const passes = createPasses(ports, options, cache);
  let due: { atMs: number; cancel: Cancel } | undefined;
  let passing: Promise<void> | undefined;
  let isWoken = false;
  let isStopped = false;
  let unchanged = 0;
  let lastFailure: string | undefined;

  function schedule(ms: number): void {
    const atMs = clock.monotonicMs() + ms;
    if (isStopped || (due && due.atMs <= atMs)) return;
    due?.cancel();
    due = { atMs, cancel: clock.after(ms, begin) };
  }

  function begin(): void {
    due = undefined;
    if (isStopped || passing) return;
    isWoken = false;
    passing = passes
      .pass()
      .then(ended, failed)
      .then(() => {
        passing = undefined;
      });
  }

  function ended(outcome: PassOutcome): void {
    if (lastFailure !== undefined)
      log({ level: "info", event: "pass.recovered", message: "scheduler passes succeed again" });
    lastFailure = undefined;
    schedule(delayAfter(outcome));
    if (isWoken) schedule(soonMs());
  }

  function delayAfter(outcome: PassOutcome): number {
    // Also after a conflict: while an owner hands over one row, its other rows cannot be reserved.
    const isUnchanged = "changed" in outcome && !outcome.changed;
    unchanged = isUnchanged ? unchanged + 1 : 0;
    switch (outcome.kind) {
      case "claimed":
        return 0;
      case "yielded":
        return outcome.forMs;
      case "conflict":
      case "waiting":
        return retryMs({ members: passes.members, unchanged, intervalMs, random: random() });
      case "reserved":
      case "idle":
        return jitteredMs(intervalMs, random());
    }
  }

  /** Logs once per kind of failure: a server that is down for an hour fails every pass in the same way. */
  function failed(error: unknown): void {
    const code = error instanceof TenureError ? error.code : "INTERNAL";
    if (code !== lastFailure)
      log({
        level: "warn",
        event: "pass.failed",
        message: `scheduler pass failed; will retry: ${error instanceof Error ? error.message : error}`,
        details: { code },
      });
    lastFailure = code;
    schedule(jitteredMs(intervalMs, random()));
    if (isWoken) schedule(soonMs());
  }

  const soonMs = (): number => spreadMs(passes.members) * random();

  return {
    start: () => schedule(soonMs()),
    wake() {
      if (passing) isWoken = true;
      else schedule(soonMs());
    },
    invalidate: passes.invalidate,
    counts: passes.counts,
    async stop() {
      isStopped = true;
      due?.cancel();
      await passing;
    },
  };
}
