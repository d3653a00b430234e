/** The messages that this process is processing, at most `max` at a time. */
export interface InFlight {
  has(key: string): boolean;
  /** Resolves to the number of free places, once there is one. */
  room(): Promise<number>;
  /** `work` must not reject: its caller does not wait for it. */
  run(key: string, work: () => Promise<void>): Promise<void>;
  /** Resolves once nothing is in flight. */
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
