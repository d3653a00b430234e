/** Calls of one socket that run at a time. An agent has as many reports on their way at most. */
const RUNNING_MAX = 16;
/** With so many more waiting the socket is not read. What the kernel had handed over already still joins the line. */
const WAITING_MAX = 16;

export interface CallLine {
  /** Runs the call now, or when one before it has ended. `call` must not throw. */
  run(call: () => Promise<void>): void;
  /** Forgets the calls that have not begun. */
  end(): void;
}

/**
 * Bounds what the calls of one socket cost: a sender that is faster than its answers is read no further, and TCP slows
 * it down. `onFull` stops the reading and starts it again.
 */
export function createCallLine(onFull: (isFull: boolean) => void): CallLine {
  let running = 0;
  let waiting: (() => Promise<void>)[] = [];
  let isFull = false;

  function tell(): void {
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
      tell();
    }
    running -= 1;
  }

  return {
    run(call) {
      if (running < RUNNING_MAX) return void start(call);
      waiting.push(call);
      tell();
    },
    end() {
      waiting = [];
    },
  };
}
