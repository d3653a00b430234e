/** Above it the oldest are forgotten: their jobs have ended, or the session misses states of jobs it watches. */
const REQUESTS_MAX = 10_000;

/**
 * The requests whose states a session asked for on this connection, with the feature `updates_on_request`. By request id,
 * because a session asks before its job has an id.
 */
export class UpdateRequests {
  readonly #requestIds = new Set<string>();

  has(requestId: string): boolean {
    return this.#requestIds.has(requestId);
  }

  add(requestId: string): void {
    this.#requestIds.add(requestId);
    const [oldest] = this.#requestIds;
    if (this.#requestIds.size > REQUESTS_MAX && oldest !== undefined) this.remove(oldest);
  }

  remove(requestId: string): void {
    this.#requestIds.delete(requestId);
  }
}
