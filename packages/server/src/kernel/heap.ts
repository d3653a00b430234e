/** The least first, and of equals whichever. A thousand or ten thousand in it make little difference. */
export interface Heap<T> {
  readonly size: number;
  first(): T | undefined;
  push(item: T): void;
  /** Takes the first out. */
  pop(): T | undefined;
}

export function createHeap<T>(isLess: (a: T, b: T) => boolean): Heap<T> {
  // Each is at most as great as its children, which are at twice its place and one or two more.
  const items: T[] = [];

  function swap(a: number, b: number): void {
    [items[a], items[b]] = [items[b]!, items[a]!];
  }

  function rise(at: number): void {
    for (let child = at; child > 0; ) {
      const parent = (child - 1) >> 1;
      if (!isLess(items[child]!, items[parent]!)) return;
      swap(child, parent);
      child = parent;
    }
  }

  function sink(at: number): void {
    for (let parent = at; ; ) {
      const left = 2 * parent + 1;
      const right = left + 1;
      if (left >= items.length) return;
      const child = right < items.length && isLess(items[right]!, items[left]!) ? right : left;
      if (!isLess(items[child]!, items[parent]!)) return;
      swap(child, parent);
      parent = child;
    }
  }

  return {
    get size() {
      return items.length;
    },
    first: () => items[0],
    push(item) {
      items.push(item);
      rise(items.length - 1);
    },
    pop() {
      const [first] = items;
      const last = items.pop();
      if (items.length > 0) {
        items[0] = last!;
        sink(0);
      }
      return first;
    },
  };
}

/** A heap whose items may change their rank, or leave, wherever they are in it. An item is in it once. */
export interface IndexedHeap<T> {
  readonly size: number;
  first(): T | undefined;
  push(item: T): void;
  remove(item: T): void;
  /** Call it after an item that is in the heap has changed its rank. */
  moved(item: T): void;
}

export function createIndexedHeap<T>(isLess: (a: T, b: T) => boolean): IndexedHeap<T> {
  const items: T[] = [];
  const places = new Map<T, number>();

  function put(item: T, at: number): void {
    items[at] = item;
    places.set(item, at);
  }

  /** Moves the item at `from` towards the root, then towards the leaves, until the order holds. */
  function settle(from: number): void {
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
      if (places.has(item)) return;
      items.push(item);
      settle(items.length - 1);
    },
    remove(item) {
      const at = places.get(item);
      if (at === undefined) return;
      places.delete(item);
      const last = items.pop()!;
      if (at === items.length) return;
      items[at] = last;
      settle(at);
    },
    moved(item) {
      const at = places.get(item);
      if (at !== undefined) settle(at);
    },
  };
}
