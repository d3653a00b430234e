import type { CallResult, FreeRows, ListedDeployment, ListSubset } from "@tenure/protocol";
import { createRowIndex, type RowIndex } from "./row-index.ts";

type ListAnswer = CallResult<"deployment.list">;

/**
 * The rows of one list, as far as its answers have arrived.
 *
 * Invariants: a row came in `items` (then `held` has it), as a free row of a demand, or as a row of another owner; where the
 * list is a subset, `owners` has what the instance counted, and the rows are not counted.
 */
export interface ListCopy {
  readonly index: RowIndex;
  /** The deployments per owner in a subset; undefined: the index has every row. */
  readonly owners: ReadonlyMap<string, number> | undefined;
  readonly recent: ReadonlyMap<string, number>;
  /** Returns whether a row of another owner changed: that has no revision. */
  apply(answer: ListAnswer): boolean;
  /** Keeps the last version of a row that cannot be read now. The instance does not count it. */
  keep(row: ListedDeployment): void;
}

interface OwnerCount {
  address: string;
  count: number;
}

export function createListCopy(): ListCopy {
  const index = createRowIndex();
  const held = new Set<string>();
  const kept = new Set<string>();
  /** The free rows of each demand, and under no number the rows of other owners. */
  const groups = new Map<number | undefined, ReadonlyMap<string, ListedDeployment>>();
  const byNumber = new Map<number, OwnerCount>();
  const counts = new Map<string, number>();
  let recent: ReadonlyMap<string, number> = new Map();
  let isSubset = false;

  function hold(row: ListedDeployment): void {
    kept.delete(row.id);
    held.add(row.id);
    index.put(row);
  }

  function drop(id: string): void {
    kept.delete(id);
    held.delete(id);
    if (![...groups.values()].some((rows) => rows.get(id) === index.get(id))) index.remove(id);
  }

  function withKept(): ReadonlyMap<string, number> {
    const rows = [...kept].map((id) => index.get(id)!).filter(isLoad);
    if (rows.length === 0) return counts;
    const all = new Map(counts);
    for (const { address } of rows) all.set(address, (all.get(address) ?? 0) + 1);
    return all;
  }

  /** Rows that are not in the group any more leave the index, unless they came again in another way. */
  function replace(group: number | undefined, rows: ReadonlyMap<string, ListedDeployment>): void {
    for (const [id, row] of groups.get(group) ?? [])
      if (!rows.has(id) && !held.has(id) && index.get(id) === row) index.remove(id);
    for (const row of rows.values()) if (index.get(row.id) !== row) index.put(row);
    if (rows.size > 0) groups.set(group, rows);
    else groups.delete(group);
  }

  function replaceFree({ demand, spec, rows }: FreeRows): void {
    const former = groups.get(demand);
    const now = new Map<string, ListedDeployment>();
    const like: ListedDeployment = { ...FREE, ...spec! };
    for (const [id, generation, updated_at, created_at] of spec ? rows : []) {
      const known = former?.get(id);
      const isSame = known?.generation === generation && known.updated_at === updated_at;
      // A copy of one object with the same fields: V8 needs 8 µs to merge two.
      const row = isSame ? known : { ...like, id, generation, updated_at, created_at };
      now.set(id, row);
    }
    replace(demand, now);
  }

  function replaceOthers(others: readonly ListedDeployment[]): boolean {
    const former = groups.get(undefined);
    const text = JSON.stringify(others);
    if (text === JSON.stringify([...(former?.values() ?? [])])) return false;
    replace(undefined, new Map(others.map((row) => [row.id, row])));
    return true;
  }

  function count([number, now, address]: ListSubset["owners"][number]): void {
    const owner = byNumber.get(number) ?? { address: address ?? "", count: 0 };
    const sum = (counts.get(owner.address) ?? 0) + now - owner.count;
    owner.count = now;
    byNumber.set(number, owner);
    if (sum > 0) counts.set(owner.address, sum);
    else counts.delete(owner.address);
  }

  function applySubset(subset: ListSubset): boolean {
    isSubset = true;
    recent = new Map(Object.entries(subset.recent));
    for (const owner of subset.owners) count(owner);
    for (const rows of subset.free) replaceFree(rows);
    if (subset.held) {
      const named = new Set(subset.held);
      for (const id of [...held].filter((one) => !named.has(one))) drop(id);
    }
    return replaceOthers(subset.others);
  }

  return {
    index,
    get owners() {
      return isSubset ? withKept() : undefined;
    },
    get recent() {
      return recent;
    },
    keep(row) {
      hold(row);
      kept.add(row.id);
    },
    apply({ items, removed, subset }) {
      for (const id of removed) index.remove(id);
      for (const row of items) subset ? hold(row) : index.put(row);
      return subset !== undefined && applySubset(subset);
    },
  };
}

const isLoad = ({ type, enabled, address }: ListedDeployment): boolean =>
  type === "deployment" && enabled && address !== "";

/** What all free rows have in common, and what no pass reads of them. */
const FREE: Omit<ListedDeployment, keyof NonNullable<FreeRows["spec"]>> = {
  ...{ id: "", generation: 0, updated_at: "", created_at: "" },
  ...{ name: "", type: "deployment", address: "", enabled: true },
  ...{ lost_after_ms: 0, revision: 0, moving_to: "", move_state: "" as const },
};
