export interface Arrivals<T> {
  /** Hands over to `next`. Bound, so that it can stand as a callback. */
  push: (thing: T) => void;
  /** The oldest not yet taken, now or as soon as it comes. */
  next(): Promise<T>;
  /** What came and was not taken. */
  rest(): T[];
}

/** Real time, and only reached by a test that fails. */
const PATIENCE_MS = 45_000;

/** Things that happen, waited for one by one: a test never sleeps, it waits for the next. */
export function createArrivals<T>(what: string): Arrivals<T> {
  const waiting: T[] = [];
  let wake: (() => void) | undefined;

  return {
    push(thing) {
      waiting.push(thing);
      wake?.();
    },
    async next() {
      if (waiting.length === 0) {
        await new Promise<void>((resolve, reject) => {
          const timer = setTimeout(() => reject(new Error(`no ${what} came`)), PATIENCE_MS);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
      }
      return waiting.shift() as T;
    },
    rest: () => waiting.splice(0),
  };
}
