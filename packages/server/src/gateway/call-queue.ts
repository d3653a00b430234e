/** Calls of one socket that run at a time. An agent sends at most as many reports at once. */
const RUNNING_MAX = 16;
/** With so many more waiting, reading pauses. Calls that were received already still join the queue. */
const WAITING_MAX = 16;

export interface CallQueue {
  /** Runs the call now, or when one before it has ended. `call` must not throw. */
  run(call: () => Promise<void>): void;
  /** Drops the calls that have not begun. */
  end(): void;
}

/**
 * Bounds the cost of one socket's calls: a sender that is faster than its answers is not read further, and TCP slows it
 * down. `onFull` pauses and resumes the reading.
 */
export function createCallQueue(onFull: (isFull: boolean) => void): CallQueue {
  let running = 0;
  let waiting: (() => Promise<void>)[] = [];
  let isFull = false;

  function notify(): void {
    const now = waiting.length >= WAITING_MAX;
    if (now === isFull) return;
    isFull = now;
    onFull(isFull);
  }

  async function start(first: () => Promise<void>): Promise<void> {
    running += 1;
    let call: (() => Promise<void>) | undefined = first;
    while (call) {
      await call();
      call = waiting.shift();
      notify();
    }
    running -= 1;
  }

  return {
    run(call) {
      if (running < RUNNING_MAX) return void start(call);
      waiting.push(call);
      notify();
    },
    end() {
      waiting = [];
    },
  };
}
