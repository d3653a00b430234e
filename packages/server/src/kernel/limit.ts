import { Queue } from "./queue.ts";

/** Runs work at once while less than `max` of it runs; the rest waits in its order. */
export function createLimit(max: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting = new Queue<() => void>();
  let running = 0;

  function start<T>(work: () => Promise<T>): Promise<T> {
    running += 1;
    const done = work();
    done.then(end, end);
    return done;
  }

  function end(): void {
    running -= 1;
    waiting.take()?.();
  }

  return (work) =>
    running < max ? start(work) : new Promise((resolve) => waiting.put(() => resolve(start(work))));
}
