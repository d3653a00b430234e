/** Positions that are marked, counted between any two of them in a few steps (a Fenwick tree). */
export interface LiveCount {
  set(position: number): void;
  clear(position: number): void;
  /** Marked after `from`, up to `to`. */
  between(from: number, to: number): number;
  /** The position of the so-many-th marked one after `from`. */
  positionAfter(from: number, count: number): number;
}

export function createLiveCount(positionMax: number): LiveCount {
  const size = 2 ** Math.ceil(Math.log2(positionMax + 1));
  const tree = new Int32Array(size + 1);

  function add(position: number, by: number): void {
    for (let at = position; at <= size; at += at & -at) tree[at]! += by;
  }

  function upTo(position: number): number {
    let sum = 0;
    for (let at = position; at > 0; at -= at & -at) sum += tree[at]!;
    return sum;
  }

  return {
    set: (position) => add(position, 1),
    clear: (position) => add(position, -1),
    between: (from, to) => upTo(to) - upTo(from),
    positionAfter(from, count) {
      let left = upTo(from) + count;
      let at = 0;
      for (let step = size; step > 0; step >>= 1) {
        if (at + step > size || tree[at + step]! >= left) continue;
        at += step;
        left -= tree[at]!;
      }
      return at + 1;
    },
  };
}
