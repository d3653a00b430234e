/** All answers to lists that are open share these bytes. */
const SHARED_BYTES = 64 * 1_024 * 1_024;
/** Frames have a limit on both sides: a longer answer is cut, and the node requests the rest. */
const ANSWER_BYTES_MAX = 512 * 1_024;
/** In smaller pieces the frames would cost more than the rows. */
const ANSWER_BYTES_MIN = 32 * 1_024;
/** Lists are written for so long before the event loop serves others. */
const SLICE_MS = 5;

export interface PacedAnswer<T> {
  answer: T;
  /** To be called once the socket has taken the answer, or is closed. */
  written(): void;
}

/**
 * Writes the answers to `deployment.list` no faster than sockets take them. When many rows appear, all node-units request
 * them at once: with 512 KiB each, 3,000 of them took 3.1 GB and kept the event loop for seconds.
 *
 * Invariants: `open` answers wait or are not written yet, and each may be as long as its share of `SHARED_BYTES`, within
 * the two limits; a reader has one of them at a time; no answer waits for another reader's socket.
 */
export interface ListPace {
  /** Calls `write` with the bytes that the answer may have, after the reader's former answer was written. */
  answer<T>(reader: object, write: (bytesMax: number) => T): Promise<PacedAnswer<T>>;
}

export function createListPace(): ListPace {
  const former = new WeakMap<object, Promise<void>>();
  let waiting: (() => void)[] = [];
  let open = 0;
  let isScheduled = false;

  function schedule(): void {
    if (isScheduled || waiting.length === 0) return;
    isScheduled = true;
    setImmediate(serve);
  }

  function serve(): void {
    isScheduled = false;
    const endMs = performance.now() + SLICE_MS;
    let served = 0;
    do waiting[served++]?.();
    while (served < waiting.length && performance.now() < endMs);
    waiting = waiting.slice(served);
    schedule();
  }

  const share = (): number =>
    Math.min(ANSWER_BYTES_MAX, Math.max(ANSWER_BYTES_MIN, SHARED_BYTES / open));

  return {
    async answer<T>(reader: object, write: (bytesMax: number) => T) {
      open += 1;
      const before = former.get(reader);
      let written = () => {};
      const end = new Promise<void>((resolve) => {
        written = () => {
          open -= 1;
          written = () => {};
          resolve();
        };
      });
      former.set(reader, end);
      await before;
      return new Promise<PacedAnswer<T>>((answered, failed) => {
        waiting.push(() => {
          try {
            answered({ answer: write(share()), written: () => written() });
          } catch (error) {
            written();
            failed(error);
          }
        });
        schedule();
      });
    },
  };
}
