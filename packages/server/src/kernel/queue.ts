/** First in, first out. Two arrays: `shift` of a long array would move all of it each time. */
export class Queue<T> {
  #inbox: T[] = [];
  #outbox: T[] = [];

  put(item: T): void {
    this.#inbox.push(item);
  }

  take(): T | undefined {
    if (this.#outbox.length === 0 && this.#inbox.length > 0) {
      this.#outbox = this.#inbox.reverse();
      this.#inbox = [];
    }
    return this.#outbox.pop();
  }
}
