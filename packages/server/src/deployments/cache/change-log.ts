/** Things in the order of their last change. */
export interface ChangeLog<T extends object> {
  readonly size: number;
  touch(item: T, position: number): void;
  forget(item: T): void;
  /** Those that changed after the position, with the position of their last change, oldest first. */
  since(position: number): { position: number; item: T }[];
}

interface Entry<T> {
  position: number;
  /** Undefined: the thing changed again, or is forgotten. */
  item: T | undefined;
}

/** Invariants: `entries` is ordered by position; each thing has one entry; at least about half of the entries have a thing. */
export function createChangeLog<T extends object>(): ChangeLog<T> {
  const last = new Map<T, Entry<T>>();
  let entries: Entry<T>[] = [];

  function clear(item: T): void {
    const former = last.get(item);
    if (former) former.item = undefined;
  }

  return {
    get size() {
      return last.size;
    },
    touch(item, position) {
      clear(item);
      const entry = { position, item };
      last.set(item, entry);
      entries.push(entry);
      if (entries.length > 2 * last.size + 64) entries = entries.filter((one) => one.item);
    },
    forget(item) {
      clear(item);
      last.delete(item);
    },
    since(position) {
      let low = 0;
      let high = entries.length;
      while (low < high) {
        const middle = (low + high) >>> 1;
        if (entries[middle]!.position <= position) low = middle + 1;
        else high = middle;
      }
      const found: { position: number; item: T }[] = [];
      for (let at = low; at < entries.length; at++) {
        const { position: changedAt, item } = entries[at]!;
        if (item) found.push({ position: changedAt, item });
      }
      return found;
    },
  };
}
