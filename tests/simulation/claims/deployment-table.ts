import type { DeploymentRow } from "../../../packages/server/src/deployments/deployment-row.ts";

/** The table `deployment` with its triggers. A row is never changed, only replaced: whoever has read it keeps what it read. */
export interface DeploymentTable {
  get(id: string): DeploymentRow | undefined;
  all(): readonly DeploymentRow[];
  ownedBy(address: string): readonly DeploymentRow[];
  moving(): readonly DeploymentRow[];
  isAnyMoving(address: string): boolean;
  insert(row: DeploymentRow): void;
  write(id: string, changes: Partial<DeploymentRow>): DeploymentRow;
  remove(id: string): void;
  /** What was written after the mark, oldest first, and the mark to ask with next. */
  since(mark: number): { rows: DeploymentRow[]; removed: string[]; mark: number };
  onChange(listener: () => void): void;
}

export function createDeploymentTable(): DeploymentTable {
  const rows = new Map<string, DeploymentRow>();
  const owned = new Map<string, Map<string, DeploymentRow>>();
  const moving = new Map<string, DeploymentRow>();
  const written: { id: string; at: number }[] = [];
  const lastAt = new Map<string, number>();
  const listeners: Array<() => void> = [];

  function place(row: DeploymentRow): void {
    rows.set(row.id, row);
    const mine = owned.get(row.address) ?? new Map<string, DeploymentRow>();
    owned.set(row.address, mine.set(row.id, row));
    if (row.moving_to !== "") moving.set(row.id, row);
    note(row.id);
  }

  function unplace(row: DeploymentRow): void {
    rows.delete(row.id);
    owned.get(row.address)?.delete(row.id);
    moving.delete(row.id);
  }

  function note(id: string): void {
    const at = written.length + 1;
    written.push({ id, at });
    lastAt.set(id, at);
    for (const tell of listeners) tell();
  }

  return {
    get: (id) => rows.get(id),
    all: () => [...rows.values()],
    ownedBy: (address) => [...(owned.get(address)?.values() ?? [])],
    moving: () => [...moving.values()],
    isAnyMoving: (address) => [...moving.values()].some((row) => row.address === address),
    insert: place,
    write(id, changes) {
      const before = rows.get(id)!;
      const after = asWritten(before, changes);
      unplace(before);
      place(after);
      return after;
    },
    remove(id) {
      const row = rows.get(id);
      if (!row) return;
      unplace(row);
      note(id);
    },
    since(mark) {
      const ids = written.slice(mark).filter(({ id, at }) => lastAt.get(id) === at);
      return {
        rows: ids.flatMap(({ id }) => rows.get(id) ?? []),
        removed: ids.filter(({ id }) => !rows.has(id)).map(({ id }) => id),
        mark: written.length,
      };
    },
    onChange: (listener) => void listeners.push(listener),
  };
}

/** `tenure_deployment_written`, less the raising of terms: a planted bug must be able to forget it. */
function asWritten(before: DeploymentRow, changes: Partial<DeploymentRow>): DeploymentRow {
  const after = { ...before, ...changes };
  if (after.address !== before.address) after.moving_to = "";
  if (after.moving_to === "") after.move_state = "";
  return after;
}
