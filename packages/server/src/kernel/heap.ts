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
