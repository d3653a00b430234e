/** Resolves when the signal aborts. Keeps its listener until then, so it is for the last wait on a signal. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/**
 * Resolves with the result of `work`, or with `undefined` if the signal aborts first. Removes its listener: a child that
 * crashes for weeks waits on the same signal again and again.
 */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const resolveEmpty = (): void => resolve(undefined);
    if (signal.aborted) return resolveEmpty();
    signal.addEventListener("abort", resolveEmpty, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", resolveEmpty));
  });
}
