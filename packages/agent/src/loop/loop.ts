import { TenureError } from "@tenure/protocol";
import type { Cancel } from "@tenure/sdk";
import { jitteredMs, lookAgainMs, spreadMs } from "./backoff.ts";
import type { HeldList } from "./deployment-cache.ts";
import type { LoopPorts } from "./loop-ports.ts";
import { createPasses, type LoopCounts, type PassEnd, type PassOptions } from "./pass.ts";

export interface Loop {
  start(): void;
  /** Something may have changed: look soon, after a delay that chance gives and that grows with the fleet. */
  wake(): void;
  /** The next pass reads the whole list anew. */
  distrust(): void;
  readonly counts: Readonly<LoopCounts>;
  /** No pass begins any more. Resolves when the last one has ended. */
  stop(): Promise<void>;
}

/**
 * Runs passes: at jittered intervals, soon after a wake-up, and at once after a claim of its own. One at a time. What
 * falls due while one runs becomes at most one more look: passes are never queued.
 *
 * `list`: for a simulation of a fleet whose nodes could not each hold a list of their own.
 */
export function createLoop(ports: LoopPorts, options: PassOptions, list?: HeldList): Loop {
  const { clock, random, log } = ports;
  const { intervalMs } = options;
  const passes = createPasses(ports, options, list);
  let due: { atMs: number; cancel: Cancel } | undefined;
  let passing: Promise<void> | undefined;
  let woken = false;
  let stopped = false;
  let unmoved = 0;
  let lastFailure: string | undefined;

  function schedule(ms: number): void {
    const atMs = clock.monotonicMs() + ms;
    if (stopped || (due && due.atMs <= atMs)) return;
    due?.cancel();
    due = { atMs, cancel: clock.after(ms, begin) };
  }

  function begin(): void {
    due = undefined;
    if (stopped || passing) return;
    woken = false;
    passing = passes
      .pass()
      .then(ended, failed)
      .then(() => {
        passing = undefined;
      });
  }

  function ended(end: PassEnd): void {
    if (lastFailure !== undefined)
      log({ level: "info", event: "pass.recovered", message: "passes succeed again" });
    lastFailure = undefined;
    schedule(waitAfter(end));
    if (woken) schedule(soonMs());
  }

  function waitAfter(end: PassEnd): number {
    // Also after a conflict: while an owner hands over one row nobody may reserve its next, and asking changes nothing.
    const isStill = "moved" in end && !end.moved;
    unmoved = isStill ? unmoved + 1 : 0;
    switch (end.kind) {
      case "claimed":
        return 0;
      case "yielded":
        return end.forMs;
      case "conflict":
      case "waiting":
        return lookAgainMs({ members: passes.members, unmoved, intervalMs, random: random() });
      case "reserved":
      case "idle":
        return jitteredMs(intervalMs, random());
    }
  }

  /** Said once per kind of failure: a server that is away for an hour fails every pass alike. */
  function failed(error: unknown): void {
    const code = error instanceof TenureError ? error.code : "INTERNAL";
    if (code !== lastFailure)
      log({
        level: "warn",
        event: "pass.failed",
        message: error instanceof Error ? error.message : String(error),
        details: { code },
      });
    lastFailure = code;
    schedule(jitteredMs(intervalMs, random()));
    if (woken) schedule(soonMs());
  }

  const soonMs = (): number => spreadMs(passes.members) * random();

  return {
    start: () => schedule(soonMs()),
    wake() {
      if (passing) woken = true;
      else schedule(soonMs());
    },
    distrust: passes.distrust,
    counts: passes.counts,
    async stop() {
      stopped = true;
      due?.cancel();
      await passing;
    },
  };
}
