import type { Clock } from "./clock.ts";

export interface Service {
  start(): void;
  /** Resolves once nothing is running any more. Safe to call twice, or before `start`. */
  stop(): Promise<void>;
}

export interface Loop extends Service {
  /** Takes the next step now instead of after the pause; while one runs, right after it. */
  wake(): void;
}

export interface LoopOptions {
  clock: Clock;
  onError: (error: unknown) => void;
}

/**
 * Runs `step` again and again, `intervalMs` apart, until stopped.
 *
 * The pause is between steps, not between starts: a slow step delays the next but never overlaps it, so a
 * sweep over a struggling database cannot pile up on itself. A failing step is reported and the loop goes
 * on; only `stop` ends it. Steps never overlap, however often it is woken. The interval may be a
 * function, for jitter or back-off.
 */
export function every(
  intervalMs: number | (() => number),
  step: (signal: AbortSignal) => Promise<void>,
  { clock, onError }: LoopOptions,
): Loop {
  const stopping = new AbortController();
  const pauseMs = typeof intervalMs === "number" ? () => intervalMs : intervalMs;
  let loop: Promise<void> | undefined;
  // New for every pause; aborted by `wake` and by `stop`.
  let pause = new AbortController();

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      pause = new AbortController();
      try {
        await step(stopping.signal);
      } catch (error) {
        onError(error);
      }
      if (!stopping.signal.aborted) await clock.sleep(pauseMs(), pause.signal);
    }
  }

  return {
    start() {
      if (!stopping.signal.aborted) loop ??= run();
    },
    async stop() {
      stopping.abort();
      pause.abort();
      await loop;
    },
    wake() {
      pause.abort();
    },
  };
}

/** Runs steps by name and knows those that have begun and not ended: at a stop that hangs, its log line names them. */
export function createSteps() {
  const running = new Set<string>();
  return {
    running: (): string[] => [...running],
    async run(name: string, work: () => Promise<void>): Promise<void> {
      running.add(name);
      await work().finally(() => running.delete(name));
    },
  };
}
