import { type Assignment, assignmentOf } from "../assignment.ts";
import { type DeploymentRow, tenantOf } from "../deployment-row.ts";
import { createSubsetIndex, type SubsetIndex } from "./subset-index.ts";

/** The last change of a row. */
export interface CachedChange {
  position: number;
  id: string;
  /** Undefined: the row was removed. */
  row: DeploymentRow | undefined;
  /** The tenants that lost the row: it was moved to another tenant, or removed. */
  departures: readonly Departure[];
}

export interface Departure {
  tenant: string;
  /** The change that took the row from the tenant. */
  position: number;
}

export interface DeploymentCache {
  /** The number of the newest change; 0 before the first. */
  position(): number;
  /** Returns false when the row is cached already. */
  put(row: DeploymentRow): boolean;
  remove(id: string): boolean;
  get(id: string): DeploymentRow | undefined;
  rows(): Iterable<DeploymentRow>;
  count(assignment: Assignment): number;
  /** Whether the node owns an enabled deployment that is not skipped. */
  owns(address: string): boolean;
  /** Rows that node-units skip. */
  skipped(): Iterable<DeploymentRow>;
  /** Whether `since(position)` is complete: no removal after it was dropped. */
  reaches(position: number): boolean;
  /** The last change of every row that changed after the position, oldest first. Lazy: readers stop when full. */
  since(position: number): Iterable<CachedChange>;
  /** The same rows, by the nodes that need them. */
  readonly subsets: SubsetIndex;
}

interface Entry extends CachedChange {
  /** The row has no later entry. */
  isLast: boolean;
}

const REMOVED_MAX = 1_000;

/**
 * The deployments in memory, in the order of their changes. An incremental list costs as much as changed since the reader's
 * last list; a full list is the changes since 0.
 *
 * - `entries` is ordered by position. Each row in `cached` and each id in `removed` has one entry with `isLast`.
 * - Entries that are not the last of their row are empty, and deleted when they are half of the list.
 * - `floor` is the newest removal that was dropped: a reader behind it needs a full list.
 */
export function createDeploymentCache({
  removedMax = REMOVED_MAX,
  emptyMax,
}: {
  removedMax?: number;
  /** Owners and kinds of free rows without a row that are remembered. */
  emptyMax?: number;
} = {}): DeploymentCache {
  const cached = new Map<string, Entry & { row: DeploymentRow }>();
  const removed = new Map<string, Entry>();
  const counts = new Map<Assignment, number>();
  const owned = new Map<string, number>();
  const skipped = new Map<string, DeploymentRow>();
  const subsets = createSubsetIndex(emptyMax);
  let entries: Entry[] = [];
  let position = 0;
  let floor = 0;

  function append<R extends DeploymentRow | undefined>(id: string, row: R): Entry & { row: R } {
    const former = cached.get(id) ?? removed.get(id);
    const departures = departuresOf(former, row, ++position);
    if (former) clearEntry(former);
    const entry = { position, id, row, departures, isLast: true };
    entries.push(entry);
    if (entries.length > 2 * (cached.size + removed.size) + 64) compact();
    return entry;
  }

  function clearEntry(entry: Entry): void {
    entry.isLast = false;
    entry.row = undefined;
  }

  function compact(): void {
    for (const [id, entry] of removed) {
      if (removed.size <= removedMax) break;
      removed.delete(id);
      clearEntry(entry);
      floor = entry.position;
    }
    entries = entries.filter(({ isLast }) => isLast);
  }

  function tally(row: DeploymentRow, by: 1 | -1): void {
    const assignment = assignmentOf(row);
    counts.set(assignment, (counts.get(assignment) ?? 0) + by);
    if (by > 0 && row.skipped) skipped.set(row.id, row);
    else skipped.delete(row.id);
    if (assignment !== "assigned") return;
    const left = (owned.get(row.address) ?? 0) + by;
    if (left > 0) owned.set(row.address, left);
    else owned.delete(row.address);
  }

  /** The index of the first entry after the position, by binary search. */
  function firstAfter(wanted: number): number {
    let low = 0;
    let high = entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (entries[middle]!.position <= wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  return {
    position: () => position,
    put(row) {
      const former = cached.get(row.id)?.row;
      if (former && isSame(former, row)) return false;
      if (former) tally(former, -1);
      tally(row, 1);
      cached.set(row.id, append(row.id, row));
      removed.delete(row.id);
      subsets.changed(former, row, position);
      return true;
    },
    remove(id) {
      const former = cached.get(id)?.row;
      if (!former) return false;
      tally(former, -1);
      removed.set(id, append(id, undefined));
      cached.delete(id);
      subsets.changed(former, undefined, position);
      return true;
    },
    get: (id) => cached.get(id)?.row,
    *rows() {
      for (const { row } of cached.values()) yield row;
    },
    count: (assignment) => counts.get(assignment) ?? 0,
    owns: (address) => owned.has(address),
    skipped: () => skipped.values(),
    reaches: (wanted) => wanted > 0 && wanted >= floor && wanted <= position,
    *since(wanted) {
      for (let index = firstAfter(wanted); index < entries.length; index++) {
        // A row that changed again has a later entry.
        const entry = entries[index]!;
        if (entry.isLast) yield entry;
      }
    },
    subsets,
  };
}

const NO_DEPARTURES: readonly Departure[] = [];

/** One per tenant, the latest: a row that moves back and forth does not grow. */
function departuresOf(
  former: CachedChange | undefined,
  row: DeploymentRow | undefined,
  position: number,
): readonly Departure[] {
  if (!former) return NO_DEPARTURES;
  const { departures } = former;
  const tenant = former.row && tenantOf(former.row);
  if (tenant === undefined || tenant === (row && tenantOf(row))) return departures;
  return [...departures.filter((one) => one.tenant !== tenant), { tenant, position }];
}

const isSame = (a: DeploymentRow, b: DeploymentRow): boolean =>
  a.generation === b.generation &&
  a.revision === b.revision &&
  a.updated_at.getTime() === b.updated_at.getTime() &&
  JSON.stringify(a) === JSON.stringify(b);
