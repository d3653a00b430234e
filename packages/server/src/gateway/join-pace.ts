import { TenureError } from "@tenure/protocol";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";

export interface JoinPaceOptions {
  clock: Clock;
  log: Log;
  /** Joins that may be unfinished at once. */
  unfinishedMax?: number | undefined;
  onRefused: () => void;
}

/**
 * So many keep the connections to the stores busy. More would only wait, and behind thousands a join takes longer than its
 * node waits for it: then all begin again, and none gets in.
 */
export const UNFINISHED_MAX = 128;
const WAIT_MS_MIN = 500;
const WAIT_MS_MAX = 60_000;
/** The time between two finished joins that is assumed before the first, and its limits. */
const GAP_MS = { first: 10, least: 1, most: 500 };
/** The share of the newest gap in the average. */
const NEWEST = 0.1;
const LOG_EVERY_MS = 10_000;

/**
 * Limits the joins of nodes that an instance carries at once. Beyond the limit a newcomer is refused with a time to come
 * back, each a little later than the one before, at the pace at which joins finish. Nodes that are connected are not slowed
 * down by others that join.
 */
export class JoinPace {
  readonly #options: JoinPaceOptions;
  readonly #unfinishedMax: number;
  #unfinished = 0;
  /** The average time between two finished joins while several are unfinished. */
  #gapMs = GAP_MS.first;
  #finishedAtMs: number | undefined;
  /** When the newcomer that was refused last was asked to come back. */
  #nextAtMs = 0;
  #refused = 0;
  #loggedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: JoinPaceOptions) {
    this.#options = options;
    this.#unfinishedMax = options.unfinishedMax ?? UNFINISHED_MAX;
  }

  /** Runs a join, or rejects with `RATE_LIMITED`. */
  async run<T>(join: () => Promise<T>): Promise<T> {
    if (this.#unfinished >= this.#unfinishedMax) throw this.#refusal();
    this.#unfinished += 1;
    try {
      return await join();
    } finally {
      this.#unfinished -= 1;
      this.#finished();
    }
  }

  #finished(): void {
    const nowMs = this.#options.clock.monotonicMs();
    const gapMs = nowMs - (this.#finishedAtMs ?? nowMs - GAP_MS.first);
    // Without a queue the gap is the time between two newcomers, not what a join takes.
    this.#finishedAtMs = this.#unfinished > 0 ? nowMs : undefined;
    this.#gapMs += NEWEST * (Math.min(gapMs, GAP_MS.most) - this.#gapMs);
    this.#gapMs = Math.max(GAP_MS.least, this.#gapMs);
  }

  #refusal(): TenureError {
    const { clock, onRefused } = this.#options;
    const nowMs = clock.monotonicMs();
    const earliestMs = nowMs + WAIT_MS_MIN;
    this.#nextAtMs = Math.max(earliestMs, this.#nextAtMs + this.#gapMs);
    const waitMs = Math.min(WAIT_MS_MAX, this.#nextAtMs - nowMs);
    this.#refused += 1;
    onRefused();
    this.#logRefused(nowMs, Math.round(waitMs));
    return new TenureError("RATE_LIMITED", { retry_after_ms: Math.round(waitMs) });
  }

  #logRefused(nowMs: number, retryAfterMs: number): void {
    if (nowMs - this.#loggedAtMs < LOG_EVERY_MS) return;
    const refused = this.#refused;
    this.#loggedAtMs = nowMs;
    this.#refused = 0;
    this.#options.log.warn(
      { event: "nodes.refused", refused, unfinished: this.#unfinished, retryAfterMs },
      "more nodes join than this instance can carry at once; the others were asked to come back later",
    );
  }
}
