import { isDeploymentType, type ListedDeployment, type Member } from "@tenure/protocol";

/** Deployments, sorted by what a pass asks of them, so that a pass costs what there is to do and not how many there are. */
export interface RowIndex {
  readonly size: number;
  /** Enabled deployments per owner. */
  readonly counts: ReadonlyMap<string, number>;
  put(row: ListedDeployment): void;
  remove(id: string): void;
  /** Rows that may need something: free, of an owner that is absent or draining, on their way, or wrong. */
  relevant(members: ReadonlyMap<string, Pick<Member, "draining">>): ListedDeployment[];
  /** Rows that this node runs, or takes over next, and every daemon. */
  concerning(address: string): ListedDeployment[];
}

type Rows = Map<string, ListedDeployment>;

export function createRowIndex(): RowIndex {
  const all: Rows = new Map();
  const daemons: Rows = new Map();
  const unknown: Rows = new Map();
  const free: Rows = new Map();
  const moving: Rows = new Map();
  const owned = new Map<string, Rows>();
  const counts = new Map<string, number>();

  function placesOf({ type, enabled, address, moving_to }: ListedDeployment): Rows[] {
    if (!isDeploymentType(type)) return [unknown];
    if (type === "daemon") return [daemons];
    if (!enabled) return [];
    const place = address === "" ? free : ownedBy(address);
    return moving_to === "" ? [place] : [place, moving];
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
    if (rows && rows.size > 0) counts.set(address, rows.size);
    else {
      owned.delete(address);
      counts.delete(address);
    }
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
    put(row) {
      remove(row.id);
      all.set(row.id, row);
      for (const place of placesOf(row)) place.set(row.id, row);
      recount(row);
    },
    remove,
    relevant(members) {
      const found = new Map([...unknown, ...daemons, ...free, ...moving]);
      for (const [address, rows] of owned) {
        const owner = members.get(address);
        if (owner && !owner.draining) continue;
        for (const [id, row] of rows) found.set(id, row);
      }
      return [...found.values()];
    },
    concerning(address) {
      const next = [...moving.values()].filter((row) => row.moving_to === address);
      const own = [...(owned.get(address)?.values() ?? [])];
      return [...new Set([...own, ...next, ...daemons.values()])];
    },
  };
}
