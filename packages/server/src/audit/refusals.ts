import type { Clock } from "../kernel/clock.ts";
import { addressGroup } from "./address-group.ts";

/** A request that was answered 401, 403 or, for a sign-in, 429. */
export interface Refusal {
  reason: string;
  /** Method and path of the route's table, or of the socket. */
  route: string;
  address: string;
  /** The token's name; absent for a caller without a valid token. */
  token?: string | undefined;
}

export interface RefusalLine extends Refusal {
  count: number;
}

/** Addresses that are counted separately. Beyond it they are counted together. */
const COUNTED_MAX = 10_000;
const LINE_EVERY_MS = 60_000;
/** Lines a minute by all addresses together: a flood from many addresses must not fill the disk. */
const LINES_PER_MINUTE_MAX = 100;
const OTHERS = "others";

interface Counted {
  /** Since its last line. */
  pending: number;
  last: Refusal;
  lineMs: number;
}

/**
 * Counts rejected requests and writes at most one line per token or address and minute: the first at once, the following
 * ones as one line with their number.
 */
export class Refusals {
  readonly #counted = new Map<string, Counted>();
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #emit: (line: RefusalLine) => void;
  #others: Counted | undefined;
  #budget = LINES_PER_MINUTE_MAX;
  #budgetMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Pick<Clock, "monotonicMs">, emit: (line: RefusalLine) => void) {
    this.#clock = clock;
    this.#emit = emit;
  }

  get size(): number {
    return this.#counted.size;
  }

  note(refusal: Refusal): void {
    const key = refusal.token ? `token ${refusal.token}` : addressGroup(refusal.address);
    const counted = this.#counted.get(key);
    if (counted) {
      counted.pending++;
      counted.last = refusal;
    } else if (this.#counted.size >= COUNTED_MAX && !refusal.token) this.#addToOthers(refusal, 1);
    else {
      const lineMs = this.#clock.monotonicMs();
      this.#counted.set(key, { pending: 0, last: refusal, lineMs });
      this.#write(refusal, 1);
    }
  }

  /** Writes the lines that are due and drops the callers that were not rejected again. `all`: at a stop. */
  sweep(all = false): void {
    const dueMs = all ? Number.POSITIVE_INFINITY : this.#clock.monotonicMs() - LINE_EVERY_MS;
    for (const [key, counted] of this.#counted) {
      if (counted.lineMs > dueMs) continue;
      if (counted.pending === 0) this.#counted.delete(key);
      else {
        this.#write(counted.last, counted.pending);
        counted.pending = 0;
        counted.lineMs = this.#clock.monotonicMs();
      }
    }
    if (!this.#others || this.#others.lineMs > dueMs) return;
    this.#emit({ ...this.#others.last, count: this.#others.pending });
    this.#others = undefined;
  }

  #write(refusal: Refusal, count: number): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#budgetMs >= LINE_EVERY_MS) {
      this.#budgetMs = nowMs;
      this.#budget = LINES_PER_MINUTE_MAX;
    }
    // Tokens are few, so their lines are not limited: a flood without tokens must not hide them.
    if (refusal.token || this.#budget-- > 0) this.#emit({ ...refusal, count });
    else this.#addToOthers(refusal, count);
  }

  #addToOthers({ reason, route }: Refusal, count: number): void {
    const last = { reason, route, address: OTHERS };
    this.#others ??= { pending: 0, last, lineMs: this.#clock.monotonicMs() };
    this.#others.pending += count;
  }
}
