/**
 * Runs `work` for each item in order, at most `limit` at a time. After a failure no further item starts; the first
 * failure is thrown when the running ones have ended.
 */
export async function inParallel<T>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const waiting = [...items];
  const failures: unknown[] = [];
  const run = async (): Promise<void> => {
    while (waiting.length > 0 && failures.length === 0) {
      await work(waiting.shift()!).catch((error: unknown) => failures.push(error));
    }
  };
  await Promise.all(Array.from({ length: limit }, run));
  if (failures.length > 0) throw failures[0];
}
