/**
 * Single-flight with a count of callers: callers with the same key share one run, which is aborted when the last of them has
 * left. Invariant: `runs` has no run that has ended or was aborted, so a later caller starts a new one.
 */
export interface SharedWork {
  /** Joins the run of a key, or starts it. Rejects when the run fails or the caller's signal aborts. */
  join(key: string, work: Work, signal: AbortSignal): Promise<void>;
  has(key: string): boolean;
}

type Work = (signal: AbortSignal) => Promise<void>;

interface Run {
  callers: number;
  done: Promise<void>;
  abort(): void;
}

export function createSharedWork(): SharedWork {
  const runs = new Map<string, Run>();

  function start(key: string, work: Work): Run {
    const aborted = new AbortController();
    const remove = (): void => {
      if (runs.get(key) === run) runs.delete(key);
    };
    const done = work(aborted.signal).finally(remove);
    done.catch(() => {}); // Every caller handles it; there may be none left.
    const abort = (): void => {
      remove();
      aborted.abort(new Error("no caller is left"));
    };
    const run: Run = { callers: 0, done, abort };
    runs.set(key, run);
    return run;
  }

  return {
    async join(key, work, signal) {
      signal.throwIfAborted();
      const run = runs.get(key) ?? start(key, work);
      run.callers++;
      try {
        await orAborted(run.done, signal);
      } finally {
        run.callers--;
        if (run.callers === 0) run.abort();
      }
    },
    has: (key) => runs.has(key),
  };
}

function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
