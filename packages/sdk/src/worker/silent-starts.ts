import type { Clock } from "../clock.ts";
import type { Attempt } from "./attempt.ts";

/** A job that ends within this needs no report of its start; a longer one reports it then. */
const WINDOW_MS = 20;
/** So many jobs of a pool in a row must have ended within the window before the next one starts in silence. */
const STREAK_MIN = 20;

/**
 * Which attempts start without a report, with the feature `deferred_start`: those of a pool whose last 20 jobs ended within
 * 20 ms. An attempt that has not ended by then reports its start, and its pool counts from zero again.
 */
export class SilentStarts {
  readonly #clock: Clock;
  readonly #report: (attempt: Attempt) => void;
  readonly #streaks = new Map<string, number>();
  /** In the order of their starts. */
  readonly #silent = new Set<Attempt>();
  #isTimed = false;

  /** `report` sends `job_started` for an attempt that is silent no more. */
  constructor(options: { clock: Clock; report: (attempt: Attempt) => void }) {
    this.#clock = options.clock;
    this.#report = options.report;
  }

  isFast(pool: string): boolean {
    return (this.#streaks.get(pool) ?? 0) >= STREAK_MIN;
  }

  add(attempt: Attempt): void {
    this.#silent.add(attempt);
    if (!this.#isTimed) this.#sweepIn(WINDOW_MS);
  }

  #sweepIn(ms: number): void {
    this.#isTimed = true;
    this.#clock.after(ms, () => this.#sweep());
  }

  /** Ends the silence of an attempt. False when it was not silent. */
  remove(attempt: Attempt): boolean {
    return this.#silent.delete(attempt);
  }

  ended({ job: { pool }, assignedAtMs }: Attempt): void {
    const isShort = this.#clock.monotonicMs() - assignedAtMs <= WINDOW_MS;
    if (isShort) this.#streaks.set(pool, Math.min((this.#streaks.get(pool) ?? 0) + 1, STREAK_MIN));
    else this.#streaks.delete(pool);
  }

  #sweep(): void {
    this.#isTimed = false;
    const nowMs = this.#clock.monotonicMs();
    for (const attempt of this.#silent) {
      const leftMs = attempt.assignedAtMs + WINDOW_MS - nowMs;
      if (leftMs > 0) {
        this.#sweepIn(leftMs);
        return;
      }
      this.#silent.delete(attempt);
      this.#streaks.delete(attempt.job.pool);
      this.#report(attempt);
    }
  }
}
