import {
  isDeploymentType,
  type ListedDeployment,
  type MatchWhole,
  type Member,
} from "@tenure/protocol";
import { byAge, demandOf, isRefused } from "../claim/plan.ts";
import { cornerOf, inCornerOf } from "./claim-window.ts";

/** Deployments, sorted by what a pass asks of them, so that a pass costs what there is to do and not how many there are. */
export interface RowIndex {
  readonly size: number;
  /** Enabled deployments per owner. */
  readonly counts: ReadonlyMap<string, number>;
  /**
   * Deployments per owner that came, or changed, too lately for its sample to show them. Late by the newest time in the
   * list and not by a clock of this node: nodes that see the same list must agree, or each would leave a row to the other.
   */
  recent(): ReadonlyMap<string, number>;
  get(id: string): ListedDeployment | undefined;
  put(row: ListedDeployment): void;
  remove(id: string): void;
  /**
   * Rows that may need something: free, of an owner that is absent, draining or may not run them, on their way, or wrong. Of free rows that
   * ask for the same only the oldest: a pass takes one, and a pass over a hundred thousand took a third of a second.
   */
  relevant(members: ReadonlyMap<string, Member>, matches?: MatchWhole): ListedDeployment[];
  /** Of free rows that ask for the same, and that are more than those: some that few others look at. */
  aside(me: string): ListedDeployment[];
  /** Rows that this node runs, or takes over next, and every daemon. */
  concerning(address: string): ListedDeployment[];
}

type Rows = Map<string, ListedDeployment>;

/**
 * Of one demand: as many as nodes can well claim at the same time. A thousand nodes find owners for ten thousand rows in
 * 56 s of the simulation with 512, 70 s with 256, 90 s with 128.
 */
export const FREE_ROWS_MAX = 512;

/** Three heartbeats: by then the child has started, and a sample of its node has been taken and sent. */
const SAMPLE_LAG_MS = 15_000;

export function createRowIndex(): RowIndex {
  const all: Rows = new Map();
  const daemons: Rows = new Map();
  const unknown: Rows = new Map();
  const free = new Map<string, RowsByAge>();
  const moving: Rows = new Map();
  const owned = new Map<string, Rows>();
  const counts = new Map<string, number>();
  const refusedRows = new WeakMap<Rows, { owner: Member; refused: ListedDeployment[] }>();
  /** Owned rows, without those that were found to be too old to be recent. */
  const young: Rows = new Map();
  let newest = "";

  function placesOf(row: ListedDeployment): (Rows | RowsByAge)[] {
    const { type, enabled, address, moving_to } = row;
    if (!isDeploymentType(type)) return [unknown];
    if (type === "daemon") return [daemons];
    if (!enabled) return [];
    const places = address === "" ? [freeLike(row)] : [ownedBy(address), young];
    return moving_to === "" ? places : [...places, moving];
  }

  function freeLike(row: ListedDeployment): RowsByAge {
    const demand = demandOf(row);
    const rows = free.get(demand) ?? createRowsByAge();
    free.set(demand, rows);
    return rows;
  }

  function ownedBy(address: string): Rows {
    const known = owned.get(address);
    if (known) return known;
    const rows: Rows = new Map();
    owned.set(address, rows);
    return rows;
  }

  function recount({ address }: ListedDeployment): void {
    const rows = owned.get(address);
    if (rows) refusedRows.delete(rows);
    if (rows && rows.size > 0) counts.set(address, rows.size);
    else {
      owned.delete(address);
      counts.delete(address);
    }
  }

  /** Looked for again when the owner or its rows have changed: most passes find both as they were. */
  function refusedBy(
    owner: Member,
    rows: Rows,
    matches: MatchWhole | undefined,
  ): readonly ListedDeployment[] {
    const former = refusedRows.get(rows);
    if (former?.owner === owner) return former.refused;
    const refused = [...rows.values()].filter((row) => isRefused(row, owner, matches));
    refusedRows.set(rows, { owner, refused });
    return refused;
  }

  function remove(id: string): void {
    const row = all.get(id);
    if (!row) return;
    for (const place of placesOf(row)) place.delete(id);
    all.delete(id);
    recount(row);
  }

  return {
    get size() {
      return all.size;
    },
    counts,
    recent() {
      const recent = new Map<string, number>();
      const sinceMs = Date.parse(newest) - SAMPLE_LAG_MS;
      for (const [id, { address, updated_at }] of young) {
        if (Date.parse(updated_at) > sinceMs) recent.set(address, (recent.get(address) ?? 0) + 1);
        else young.delete(id);
      }
      return recent;
    },
    get: (id) => all.get(id),
    put(row) {
      remove(row.id);
      if (row.updated_at > newest) newest = row.updated_at;
      all.set(row.id, row);
      for (const place of placesOf(row)) place.set(row.id, row);
      recount(row);
    },
    remove,
    relevant(members, matches) {
      const found: Rows = new Map([...unknown, ...daemons]);
      for (const [demand, rows] of free) {
        for (const row of rows.oldest(FREE_ROWS_MAX)) found.set(row.id, row);
        if (rows.size === 0) free.delete(demand);
      }
      for (const [id, row] of moving) found.set(id, row);
      for (const [address, rows] of owned) {
        const owner = members.get(address);
        const some = owner && !owner.draining ? refusedBy(owner, rows, matches) : rows.values();
        for (const row of some) found.set(row.id, row);
      }
      return [...found.values()];
    },
    aside: (me) =>
      [...free.values()]
        .filter((rows) => rows.size > FREE_ROWS_MAX)
        .flatMap((rows) => inCornerOf(me, rows.inCorner)),
    concerning(address) {
      const next = [...moving.values()].filter((row) => row.moving_to === address);
      const own = [...(owned.get(address)?.values() ?? [])];
      return [...new Set([...own, ...next, ...daemons.values()])];
    },
  };
}

interface RowsByAge {
  readonly size: number;
  set(id: string, row: ListedDeployment): void;
  delete(id: string): void;
  oldest(countMax: number): ListedDeployment[];
  inCorner(corner: number): Iterable<ListedDeployment>;
}

/** Sorted when asked, and only if a row came out of order. What was taken away stays in the order until half of it has. */
function createRowsByAge(): RowsByAge {
  const held: Rows = new Map();
  const corners = new Map<number, Rows>();
  let order: ListedDeployment[] = [];
  let isSorted = true;
  const isHeld = (row: ListedDeployment): boolean => held.get(row.id) === row;

  return {
    get size() {
      return held.size;
    },
    set(id, row) {
      held.set(id, row);
      const corner = corners.get(cornerOf(id)) ?? new Map();
      corners.set(cornerOf(id), corner.set(id, row));
      const last = order.at(-1);
      if (last && byAge(last, row) > 0) isSorted = false;
      order.push(row);
    },
    delete(id) {
      held.delete(id);
      corners.get(cornerOf(id))?.delete(id);
    },
    inCorner: (corner) => corners.get(corner)?.values() ?? [],
    oldest(countMax) {
      if (order.length > 2 * held.size) order = order.filter(isHeld);
      if (!isSorted) order.sort(byAge);
      isSorted = true;
      const found: ListedDeployment[] = [];
      for (const row of order) {
        if (found.length === countMax) break;
        if (isHeld(row)) found.push(row);
      }
      return found;
    },
  };
}
