export interface PriorityLine {
  add<T>(work: () => Promise<T>): Promise<T>;
  /** Runs before all work of `add` that has not started. */
  addFirst<T>(work: () => Promise<T>): Promise<T>;
}

/** Runs one piece of work after another. */
export function createPriorityLine(): PriorityLine {
  const first = createQueue();
  const others = createQueue();
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

  function enqueue<T>(queue: Queue, work: () => Promise<T>): Promise<T> {
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

type Queue = ReturnType<typeof createQueue>;

/** A queue of two arrays: `shift` of a long array would move all of it each time. */
function createQueue() {
  let inbox: (() => Promise<void>)[] = [];
  let outbox: (() => Promise<void>)[] = [];
  return {
    put: (work: () => Promise<void>) => void inbox.push(work),
    take(): (() => Promise<void>) | undefined {
      if (outbox.length === 0 && inbox.length > 0) {
        outbox = inbox.reverse();
        inbox = [];
      }
      return outbox.pop();
    },
  };
}
