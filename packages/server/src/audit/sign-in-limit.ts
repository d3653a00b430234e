import type { Clock } from "../kernel/clock.ts";
import { addressGroup } from "./address-group.ts";

/** Failed sign-ins of an address before it must wait. */
const FAILURES_MAX = 10;
/** How long it takes until one more failure is allowed. */
const REFILL_MS = 6_000;
const ADDRESSES_MAX = 10_000;

interface Bucket {
  failures: number;
  atMs: number;
}

/**
 * Limits failed sign-ins: ten from one address at once, then ten a minute. It counts by address only, so that failures from
 * one address never lock out a valid token at another. Beyond 10,000 addresses the oldest is dropped.
 */
export class SignInLimit {
  readonly #buckets = new Map<string, Bucket>();
  readonly #clock: Pick<Clock, "monotonicMs">;

  constructor(clock: Pick<Clock, "monotonicMs">) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#buckets.size;
  }

  /** How long this address must wait before its next sign-in is checked; 0 = not at all. */
  waitMs(address: string): number {
    const { failures } = this.#current(addressGroup(address));
    return Math.max(0, Math.ceil((failures - FAILURES_MAX + 1) * REFILL_MS));
  }

  failed(address: string): void {
    const key = addressGroup(address);
    const { failures, atMs } = this.#current(key);
    this.#buckets.delete(key);
    this.#buckets.set(key, { failures: failures + 1, atMs });
    if (this.#buckets.size > ADDRESSES_MAX)
      this.#buckets.delete(this.#buckets.keys().next().value!);
  }

  #current(key: string): Bucket {
    const nowMs = this.#clock.monotonicMs();
    const { failures, atMs } = this.#buckets.get(key) ?? { failures: 0, atMs: nowMs };
    return { failures: Math.max(0, failures - (nowMs - atMs) / REFILL_MS), atMs: nowMs };
  }
}
