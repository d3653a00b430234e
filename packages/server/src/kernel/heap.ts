/** A binary min-heap whose items can be re-ranked or removed in place. An item is in it once; order among equals is unspecified. */
export interface IndexedHeap<T> {
  readonly size: number;
  first(): T | undefined;
  push(item: T): void;
  remove(item: T): void;
  /** To call after an item in the heap has changed its rank. */
  moved(item: T): void;
}

export function createIndexedHeap<T>(isLess: (a: T, b: T) => boolean): IndexedHeap<T> {
  const items: T[] = [];
  const positions = new Map<T, number>();

  function put(item: T, at: number): void {
    items[at] = item;
    positions.set(item, at);
  }

  /** Moves the item at `from` towards the root, then towards the leaves, until the heap order holds. */
  function restore(from: number): void {
    const item = items[from]!;
    let at = from;
    for (; at > 0 && isLess(item, items[(at - 1) >> 1]!); at = (at - 1) >> 1)
      put(items[(at - 1) >> 1]!, at);
    for (let left = 2 * at + 1; left < items.length; left = 2 * at + 1) {
      const right = left + 1;
      const child = right < items.length && isLess(items[right]!, items[left]!) ? right : left;
      if (!isLess(items[child]!, item)) break;
      put(items[child]!, at);
      at = child;
    }
    put(item, at);
  }

  return {
    get size() {
      return items.length;
    },
    first: () => items[0],
    push(item) {
      if (positions.has(item)) return;
      items.push(item);
      restore(items.length - 1);
    },
    remove(item) {
      const at = positions.get(item);
      if (at === undefined) return;
      positions.delete(item);
      const last = items.pop()!;
      if (at === items.length) return;
      items[at] = last;
      restore(at);
    },
    moved(item) {
      const at = positions.get(item);
      if (at !== undefined) restore(at);
    },
  };
}
