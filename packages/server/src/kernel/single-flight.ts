/** Shares one running call per key: a caller that comes while it runs gets the same result, or the same error. */
export function createSingleFlight<T>(): (key: string, work: () => Promise<T>) => Promise<T> {
  const running = new Map<string, Promise<T>>();
  return (key, work) => {
    const shared = running.get(key) ?? work().finally(() => void running.delete(key));
    running.set(key, shared);
    return shared;
  };
}
