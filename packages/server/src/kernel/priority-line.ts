import { Queue } from "./queue.ts";

export interface PriorityLine {
  add<T>(work: () => Promise<T>): Promise<T>;
  /** Runs before all work of `add` that has not started. */
  addFirst<T>(work: () => Promise<T>): Promise<T>;
}

/** Runs one piece of work after another. */
export function createPriorityLine(): PriorityLine {
  const first = new Queue<() => Promise<void>>();
  const others = new Queue<() => Promise<void>>();
  let isRunning = false;

  async function run(): Promise<void> {
    if (isRunning) return;
    isRunning = true;
    await Promise.resolve(); // the caller gets its promise before the work starts
    for (let next = first.take() ?? others.take(); next; next = first.take() ?? others.take()) {
      await next();
    }
    isRunning = false;
  }

  function enqueue<T>(queue: Queue<() => Promise<void>>, work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      queue.put(async () => {
        try {
          resolve(await work());
        } catch (error) {
          reject(error);
        }
      });
      void run();
    });
  }

  return {
    add: (work) => enqueue(others, work),
    addFirst: (work) => enqueue(first, work),
  };
}
