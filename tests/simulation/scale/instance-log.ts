import {
  CLAIM_CANDIDATES_MAX,
  createRowsByAge,
  FREE_ROWS_MAX,
  type ListedDeployment,
  rowsInWindow,
} from "@tenure/protocol";
import type { Costs } from "./costs.ts";
import { countedBytes, type ListParts, NO_PARTS } from "./list-parts.ts";
import type { Change } from "./table.ts";

/** What a node has read of its instance's list. */
export interface ReadTo {
  /** In the log of the instance; 0: nothing. */
  position: number;
  /** The node reads a long list in pieces. */
  isContinued: boolean;
}

export interface LoggedAnswer {
  parts: ListParts;
  readTo: ReadTo;
  /** The state of the table that the node has now. Undefined: more of the list follows. */
  tableAt: number | undefined;
}

/**
 * The answers of one instance, counted and not written. The server's `answerSubset` writes them, but its index of 100,000
 * rows in each of twenty instances would need too much memory and time. Every row has the same demand here.
 *
 * `scale.test.ts` compares both: every count is the same.
 */
export interface InstanceLog {
  /** Each row changed once, up to this state of the table. */
  add(changes: readonly Change[], tableAt: number): void;
  answer(node: string, from: ReadTo, bytesMax: number): LoggedAnswer;
}

/** Owners have numbers: `FREE` for none, `NO_ROW` before the row was created. */
const NO_ROW = -1;
const FREE = 0;
/** One row more than a pass considers, as the server sends. */
const OLDEST_MAX = FREE_ROWS_MAX + 1;

/** The numbers of owners are the same for all instances: ten thousand nodes compare millions of them. */
export function createOwnerNumbers(): (address: string) => number {
  const numbers = new Map<string, number>([["", FREE]]);
  return (address) => {
    const known = numbers.get(address) ?? numbers.size;
    numbers.set(address, known);
    return known;
  };
}

export function createInstanceLog(
  costs: Costs,
  numberOf: (address: string) => number,
): InstanceLog {
  let before = new Int32Array(1_024);
  let after = new Int32Array(1_024);
  let position = 0;
  let tableAt = 0;
  /** The first change of each owner. */
  let firstAt = new Int32Array(1_024);
  /** The number of the last count that met the owner. */
  let metBy = new Int32Array(1_024);
  let counts = 0;
  const rowsOf = new Map<number, number>();
  const free = createRowsByAge<ListedDeployment>();
  /** Undefined after a change. */
  let oldest: ReadonlySet<string> | undefined;

  function append({ id, before: former, after: row }: Change): void {
    if (position === before.length) [before, after] = [twice(before), twice(after)];
    before[position] = former ? numberOf(former.address) : NO_ROW;
    after[position] = numberOf(row.address);
    position += 1;
    for (const [owner, by] of [
      [before[position - 1]!, -1] as const,
      [after[position - 1]!, 1] as const,
    ])
      if (owner > FREE) countRow(owner, by);
    if (former?.address === "") free.delete(id);
    if (row.address === "") free.set(id, row);
    oldest = undefined;
  }

  function countRow(owner: number, by: 1 | -1): void {
    while (owner >= firstAt.length) [firstAt, metBy] = [twice(firstAt), twice(metBy)];
    if (firstAt[owner] === 0) firstAt[owner] = position;
    rowsOf.set(owner, (rowsOf.get(owner) ?? 0) + by);
  }

  /** Counts the parts of the changes after `from`, from the last one back while they have less than `bytesMax`. */
  function partsAfter(from: ReadTo, me: number, freeSent: number, bytesMax: number) {
    const found = { parts: { ...NO_PARTS }, at: position, isOwnChanged: false };
    counts += 1;
    const parts = { ...NO_PARTS };
    for (let at = position; at > from.position; at--) {
      const [former, owner] = [before[at - 1]!, after[at - 1]!];
      if (parts.demands === 0 && (former === FREE || owner === FREE)) {
        parts.demands = 1;
        parts.free = freeSent;
      }
      if (former > FREE) meet(former, parts, from);
      if (owner > FREE) meet(owner, parts, from);
      if (owner === me) parts.rows += 1;
      if (owner === me || former === me) found.isOwnChanged = true;
      if (bytesMax < Number.POSITIVE_INFINITY) {
        if (countedBytes(parts, costs) >= bytesMax) return found;
        Object.assign(found.parts, parts);
        found.at = at - 1;
      }
    }
    Object.assign(found.parts, parts);
    return found;
  }

  function meet(owner: number, parts: ListParts, { position: known, isContinued }: ReadTo): void {
    if (metBy[owner] === counts) return;
    metBy[owner] = counts;
    parts.owners += 1;
    if (isContinued || firstAt[owner]! > known) parts.named += 1;
  }

  /** As many of the oldest as a pass considers, and those of the node's claim window. */
  function freeSentTo(node: string): number {
    oldest ??= new Set(free.oldest(OLDEST_MAX).map(({ id }) => id));
    const ids = oldest;
    if (free.size <= ids.size) return ids.size;
    const window = rowsInWindow(node, CLAIM_CANDIDATES_MAX, free.inShard);
    return ids.size + window.filter(({ id }) => !ids.has(id)).length;
  }

  return {
    add(changes, to) {
      for (const change of changes) append(change);
      tableAt = to;
    },
    answer(node, from, bytesMax) {
      const me = numberOf(node);
      const freeSent = freeSentTo(node);
      const all = partsAfter(from, me, freeSent, Number.POSITIVE_INFINITY);
      const bytes = countedBytes(all.parts, costs);
      if (bytes > bytesMax) {
        const rest = partsAfter(from, me, freeSent, bytes - bytesMax);
        if (rest.parts.rows + rest.parts.demands + rest.parts.owners > 0)
          return {
            parts: difference(all.parts, rest.parts),
            readTo: { position: rest.at, isContinued: true },
            tableAt: undefined,
          };
      }
      const namesHeld = from.isContinued || from.position === 0 || all.isOwnChanged;
      return {
        parts: { ...all.parts, held: namesHeld ? (rowsOf.get(me) ?? 0) : 0 },
        readTo: { position, isContinued: false },
        tableAt,
      };
    },
  };
}

function twice(array: Int32Array): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(2 * array.length);
  larger.set(array);
  return larger;
}

function difference(all: ListParts, rest: ListParts): ListParts {
  const parts = { ...NO_PARTS };
  for (const name of Object.keys(parts) as (keyof ListParts)[])
    parts[name] = all[name] - rest[name];
  return parts;
}
