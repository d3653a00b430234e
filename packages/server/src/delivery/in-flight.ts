/** The messages that are being worked on in this process, and never more of them than `max`. */
export interface InFlight {
  has(key: string): boolean;
  /** Resolves to the number of free places, as soon as there is one. */
  room(): Promise<number>;
  /** `work` must not reject: who started it has gone on by then. */
  run(key: string, work: () => Promise<void>): Promise<void>;
  /** Resolves when nothing is in flight any more. */
  drained(): Promise<void>;
}

export function createInFlight(max: number): InFlight {
  const running = new Map<string, Promise<void>>();
  return {
    has: (key) => running.has(key),
    async room() {
      while (running.size >= max) await Promise.race(running.values());
      return max - running.size;
    },
    run(key, work) {
      const ended = work().finally(() => running.delete(key));
      running.set(key, ended);
      return ended;
    },
    async drained() {
      while (running.size > 0) await Promise.all(running.values());
    },
  };
}
