import type { List } from "@tenure/protocol";

/** One page of a list that is in memory, sorted by its key. The cursor is the last key of the page before. */
export function pageOf<T>(
  sorted: readonly T[],
  keyOf: (item: T) => string,
  { limit, cursor }: { limit: number; cursor?: string | undefined },
): List<T> {
  const rest = cursor === undefined ? sorted : sorted.filter((item) => keyOf(item) > cursor);
  const items = rest.slice(0, limit);
  const last = items.at(-1);
  return { items, next_cursor: last && rest.length > limit ? keyOf(last) : null };
}
