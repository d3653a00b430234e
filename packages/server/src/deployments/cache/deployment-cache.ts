import { type Assignment, assignmentOf } from "../assignment.ts";
import type { DeploymentRow } from "../deployment-row.ts";

/** What changed, in the order it did. */
export interface LoggedChange {
  position: number;
  id: string;
  /** `undefined`: it is gone. */
  row: DeploymentRow | undefined;
}

export interface ChangeLog {
  /** Of the newest change; 0 before the first. */
  position(): number;
  /** `false` when this is the row we have. */
  put(row: DeploymentRow): boolean;
  remove(id: string): boolean;
  get(id: string): DeploymentRow | undefined;
  rows(): Iterable<DeploymentRow>;
  count(assignment: Assignment): number;
  /** Whether a deployment that is enabled is this node's, and not skipped. */
  owns(address: string): boolean;
  /** Rows that node-units skip. */
  skipped(): Iterable<DeploymentRow>;
  /** Whether a reader at this position can be told the rest as changes. */
  reaches(position: number): boolean;
  /** The last change of every row that changed after the position, oldest first. Lazy: readers stop when full. */
  since(position: number): Iterable<LoggedChange>;
}

interface Entry extends LoggedChange {
  /** Nothing newer is known of the same row. */
  isLast: boolean;
}

const GONE_MAX = 1_000;

/**
 * The list in memory, with the order of its changes: what a reader is told costs what changed since it last
 * asked, however long the list is. A full list is the changes since 0.
 */
export function createChangeLog({ goneMax = GONE_MAX }: { goneMax?: number } = {}): ChangeLog {
  const held = new Map<string, Entry & { row: DeploymentRow }>();
  const gone = new Map<string, Entry>();
  const counts = new Map<Assignment, number>();
  const owned = new Map<string, number>();
  const skipped = new Map<string, DeploymentRow>();
  let entries: Entry[] = [];
  let position = 0;
  /** Removals up to here are forgotten: whoever is behind it must read everything. */
  let floor = 0;

  function log<R extends DeploymentRow | undefined>(id: string, row: R): Entry & { row: R } {
    const former = held.get(id) ?? gone.get(id);
    if (former) letGo(former);
    const entry = { position: ++position, id, row, isLast: true };
    entries.push(entry);
    if (entries.length > 2 * (held.size + gone.size) + 64) compact();
    return entry;
  }

  function letGo(entry: Entry): void {
    entry.isLast = false;
    entry.row = undefined;
  }

  function compact(): void {
    for (const [id, entry] of gone) {
      if (gone.size <= goneMax) break;
      gone.delete(id);
      letGo(entry);
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

  /** The first entry after the position: entries are in order, so half of them go at every step. */
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
      const former = held.get(row.id);
      if (former && isSame(former.row, row)) return false;
      if (former) tally(former.row, -1);
      tally(row, 1);
      held.set(row.id, log(row.id, row));
      gone.delete(row.id);
      return true;
    },
    remove(id) {
      const former = held.get(id);
      if (!former) return false;
      tally(former.row, -1);
      gone.set(id, log(id, undefined));
      held.delete(id);
      return true;
    },
    get: (id) => held.get(id)?.row,
    *rows() {
      for (const { row } of held.values()) yield row;
    },
    count: (assignment) => counts.get(assignment) ?? 0,
    owns: (address) => owned.has(address),
    skipped: () => skipped.values(),
    reaches: (wanted) => wanted > 0 && wanted >= floor && wanted <= position,
    *since(wanted) {
      for (let index = firstAfter(wanted); index < entries.length; index++) {
        // A row that changed again comes with its later entry.
        const entry = entries[index]!;
        if (entry.isLast) yield entry;
      }
    },
  };
}

const isSame = (a: DeploymentRow, b: DeploymentRow): boolean =>
  a.generation === b.generation &&
  a.revision === b.revision &&
  a.updated_at.getTime() === b.updated_at.getTime() &&
  JSON.stringify(a) === JSON.stringify(b);
