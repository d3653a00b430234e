import {
  byAge,
  CLAIM_CANDIDATES_MAX,
  createRowsByAge,
  FREE_ROWS_MAX,
  isDeploymentType,
  type ListedDeployment,
  type MatchWhole,
  type Member,
  type RowsByAge,
  rowsInWindow,
} from "@tenure/protocol";
import { demandOf, isRefused } from "../claim/plan.ts";

/**
 * Deployments in memory, grouped by what a pass needs, so that the cost of a pass depends on the work and not on the number
 * of rows.
 *
 * Invariants: every row is in `all` and in exactly the groups that `groupsOf` names for it; `counts` has no zero.
 */
export interface RowIndex {
  readonly size: number;
  /** Enabled deployments per owner. */
  readonly counts: ReadonlyMap<string, number>;
  /**
   * Deployments per owner that are newer than its last sample can show. Measured against the newest time in the list and
   * not against this node's clock: nodes with the same list must agree, or each would leave a row to the other.
   */
  recent(): ReadonlyMap<string, number>;
  get(id: string): ListedDeployment | undefined;
  put(row: ListedDeployment): void;
  remove(id: string): void;
  /**
   * Rows that may need an action: free, moving, invalid, or of an owner that is absent, draining or may not run them. Of free
   * rows with the same demand only the oldest: a pass claims one, and a pass over 100,000 took a third of a second.
   */
  relevant(members: ReadonlyMap<string, Member>, matches?: MatchWhole): ListedDeployment[];
  /** Free rows beyond those, from the shards that few other nodes share. */
  claimWindow(me: string): ListedDeployment[];
  /** Rows that this node runs or takes over next, and every daemon. */
  forNode(address: string): ListedDeployment[];
}

type Rows = Map<string, ListedDeployment>;

/** Three heartbeats: by then the child has started and its node has sent a sample. */
const SAMPLE_LAG_MS = 15_000;

export function createRowIndex(): RowIndex {
  const all: Rows = new Map();
  const daemons: Rows = new Map();
  const unknown: Rows = new Map();
  const free = new Map<string, RowsByAge<ListedDeployment>>();
  const moving: Rows = new Map();
  const owned = new Map<string, Rows>();
  const counts = new Map<string, number>();
  const refusedRows = new WeakMap<Rows, { owner: Member; refused: ListedDeployment[] }>();
  /** Owned rows, except those already found too old to be recent. */
  const young: Rows = new Map();
  let newest = "";

  function groupsOf(row: ListedDeployment): (Rows | RowsByAge<ListedDeployment>)[] {
    const { type, enabled, address, moving_to } = row;
    if (!isDeploymentType(type)) return [unknown];
    if (type === "daemon") return [daemons];
    if (!enabled) return [];
    const groups = address === "" ? [freeLike(row)] : [ownedBy(address), young];
    return moving_to === "" ? groups : [...groups, moving];
  }

  function freeLike(row: ListedDeployment): RowsByAge<ListedDeployment> {
    const demand = demandOf(row);
    const rows = free.get(demand) ?? createRowsByAge<ListedDeployment>();
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

  /** Cached until the owner or its rows change: in most passes neither has. */
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
    for (const group of groupsOf(row)) group.delete(id);
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
      for (const group of groupsOf(row)) group.set(row.id, row);
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
    claimWindow: (me) =>
      [...free.values()]
        .filter((rows) => rows.size > FREE_ROWS_MAX)
        .flatMap((rows) =>
          rowsInWindow(me, CLAIM_CANDIDATES_MAX, rows.inShard)
            .sort(byAge)
            .slice(0, CLAIM_CANDIDATES_MAX),
        ),
    forNode(address) {
      const next = [...moving.values()].filter((row) => row.moving_to === address);
      const own = [...(owned.get(address)?.values() ?? [])];
      return [...new Set([...own, ...next, ...daemons.values()])];
    },
  };
}
