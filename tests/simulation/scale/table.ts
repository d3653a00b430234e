import {
  byAge,
  CLAIM_CANDIDATES_MAX,
  FREE_ROWS_MAX,
  type ListedDeployment,
  rowsInWindow,
  shardOf,
} from "@tenure/protocol";

/** The table of deployments with its history, so that ten thousand nodes can each look at their own moment of it. */
export interface VersionedTable {
  /** The number of the newest change. */
  head(): number;
  free(): number;
  get(id: string): ListedDeployment;
  insert(row: ListedDeployment): void;
  write(id: string, changes: Partial<ListedDeployment>): ListedDeployment;
  ownedBy(address: string): ListedDeployment[];
  countOf(address: string): number;
  changes(from: number, to: number): readonly Change[];
  /** What a reader at this position sees. */
  at(position: number): TableView;
}

export interface TableView {
  oldestFree(countMax: number): ListedDeployment[];
  /** As the agent's own cache gives them. */
  claimWindow(me: string): ListedDeployment[];
  ownedBy(addresses: Iterable<string>): ListedDeployment[];
  countOf(address: string): number;
  /** Those of these who own the fewest. */
  least(addresses: readonly string[]): string[];
}

export interface Change {
  id: string;
  before: ListedDeployment | undefined;
  after: ListedDeployment;
}

export function createVersionedTable(): VersionedTable {
  const rows = new Map<string, ListedDeployment>();
  const owned = new Map<string, Map<string, ListedDeployment>>();
  const changes: Change[] = [];
  const freeRows = createFreeRows();
  // By number and not by name: ten thousand nodes ask for ten thousand counts at a time.
  const numbers = new Map<string, number>();
  const numbered = new WeakMap<readonly string[], Int32Array>();
  let counts = new Int32Array(1_024);
  /**
   * The last one that was asked for: a pass asks several times in a row. Kept by each of ten thousand nodes, views of the
   * moment in which ten thousand rows were released were more than four gigabytes.
   */
  let lastView: { position: number; head: number; view: TableView } | undefined;

  function placeOf(address: string): number {
    const known = numbers.get(address);
    if (known !== undefined) return known;
    numbers.set(address, numbers.size);
    if (numbers.size > counts.length) {
      const larger = new Int32Array(2 * counts.length);
      larger.set(counts);
      counts = larger;
    }
    return numbers.size - 1;
  }

  function count(address: string, by: 1 | -1): void {
    const place = placeOf(address); // first: it may put another array in the place of `counts`
    counts[place]! += by;
  }

  function placesOf(addresses: readonly string[]): Int32Array {
    const places = numbered.get(addresses) ?? Int32Array.from(addresses, placeOf);
    numbered.set(addresses, places);
    return places;
  }

  function place(row: ListedDeployment, before: ListedDeployment | undefined): void {
    rows.set(row.id, row);
    if (row.address === "") freeRows.add(row);
    else {
      const mine = owned.get(row.address) ?? new Map<string, ListedDeployment>();
      owned.set(row.address, mine.set(row.id, row));
      count(row.address, 1);
    }
    changes.push({ id: row.id, before, after: row });
  }

  function write(id: string, changed: Partial<ListedDeployment>): ListedDeployment {
    const before = rows.get(id)!;
    const after = { ...before, ...changed };
    if (before.address === "") freeRows.remove(before);
    else {
      owned.get(before.address)?.delete(id);
      count(before.address, -1);
    }
    place(after, before);
    return after;
  }

  /** What came after the position, undone: the state of those rows as the reader has it. Few, because readers are quick. */
  function undone(position: number): Map<string, ListedDeployment | undefined> {
    const states = new Map<string, ListedDeployment | undefined>();
    for (let at = changes.length; at > position; at--) {
      const { id, before } = changes[at - 1]!;
      states.set(id, before);
    }
    return states;
  }

  function at(position: number): TableView {
    const head = changes.length;
    if (lastView?.position !== position || lastView.head !== head)
      lastView = { position, head, view: viewAt(position) };
    return lastView.view;
  }

  function viewAt(position: number): TableView {
    const before = undone(position);
    const formerly = [...before.values()].filter((row) => row !== undefined);
    const deltas = new Map<string, number>();
    const shift = (address: string, by: number) =>
      deltas.set(address, (deltas.get(address) ?? 0) + by);
    for (const { address } of formerly) shift(address, 1);
    for (const id of before.keys()) shift(rows.get(id)?.address ?? "", -1);
    return {
      oldestFree(countMax) {
        const now = freeRows.oldest(countMax + before.size).filter(({ id }) => !before.has(id));
        const then = formerly.filter(({ address }) => address === "");
        const found = then.length > 0 ? [...now, ...then].sort(byAge) : now;
        return found.slice(0, countMax);
      },
      claimWindow(me) {
        const then = formerly.filter(({ address }) => address === "");
        const changed = [...before.keys()].filter((id) => rows.get(id)?.address === "").length;
        if (freeRows.size() - changed + then.length <= FREE_ROWS_MAX) return [];
        const found = rowsInWindow(me, CLAIM_CANDIDATES_MAX, (shard) => [
          ...freeRows.inShard(shard).filter(({ id }) => !before.has(id)),
          ...then.filter(({ id }) => shardOf(id) === shard),
        ]);
        return found.sort(byAge).slice(0, CLAIM_CANDIDATES_MAX);
      },
      ownedBy(addresses) {
        const wanted = new Set(addresses);
        const now = [...wanted].flatMap((address) => [...(owned.get(address)?.values() ?? [])]);
        const then = formerly.filter(({ address }) => wanted.has(address));
        return [...now.filter(({ id }) => !before.has(id)), ...then];
      },
      countOf: (address) => (owned.get(address)?.size ?? 0) + (deltas.get(address) ?? 0),
      least(addresses) {
        const places = placesOf(addresses);
        // Few have changed since: for the rest the newest counts are right.
        const changed = new Map([...deltas].map(([address, by]) => [placeOf(address), by]));
        let least = Number.POSITIVE_INFINITY;
        const found: string[] = [];
        for (let nth = 0; nth < places.length; nth++) {
          const place = places[nth]!;
          const count = counts[place]! + (changed.size > 0 ? (changed.get(place) ?? 0) : 0);
          if (count > least) continue;
          if (count < least) found.length = 0;
          least = count;
          found.push(addresses[nth]!);
        }
        return found;
      },
    };
  }

  return {
    head: () => changes.length,
    free: () => freeRows.size(),
    get: (id) => rows.get(id)!,
    insert: (row) => place(row, undefined),
    write,
    ownedBy: (address) => [...(owned.get(address)?.values() ?? [])],
    countOf: (address) => owned.get(address)?.size ?? 0,
    changes: (from, to) => changes.slice(from, to),
    at,
  };
}

function createFreeRows() {
  const held = new Set<ListedDeployment>();
  const shards = new Map<number, Set<ListedDeployment>>();
  let order: ListedDeployment[] = [];
  let first = 0;
  let isSorted = true;
  const isHeld = (row: ListedDeployment) => held.has(row);
  return {
    size: () => held.size,
    add(row: ListedDeployment) {
      const last = order.at(-1);
      if (last && byAge(last, row) > 0) isSorted = false;
      held.add(row);
      const shard = shards.get(shardOf(row.id)) ?? new Set();
      shards.set(shardOf(row.id), shard.add(row));
      order.push(row);
    },
    remove(row: ListedDeployment) {
      held.delete(row);
      shards.get(shardOf(row.id))?.delete(row);
    },
    inShard: (shard: number) => [...(shards.get(shard) ?? [])],
    oldest(countMax: number): ListedDeployment[] {
      while (first < order.length && !isHeld(order[first]!)) first += 1;
      if (!isSorted || first > 1_000) {
        order = order.slice(first).filter(isHeld);
        if (!isSorted) order.sort(byAge);
        isSorted = true;
        first = 0;
      }
      const found: ListedDeployment[] = [];
      for (let at = first; at < order.length && found.length < countMax; at++)
        if (isHeld(order[at]!)) found.push(order[at]!);
      return found;
    },
  };
}
