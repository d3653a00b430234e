import {
  type Aged,
  createRowsByAge,
  demandKey,
  FREE_ROWS_MAX,
  type FreeRows,
  isDeploymentType,
  loaderVariables,
  type RowsByAge,
  usesSecrets,
} from "@tenure/protocol";
import { assignmentOf } from "../assignment.ts";
import { type DeploymentRow, tenantOf } from "../deployment-row.ts";
import { type ChangeLog, createChangeLog } from "./change-log.ts";

/** A row that a node has in full, and its last change. */
export interface HeldRow {
  position: number;
  row: DeploymentRow;
}

/** The free rows of one demand. */
export interface Demand {
  key: string;
  number: number;
  spec: NonNullable<FreeRows["spec"]>;
  tenant: string;
  rows: RowsByAge<FreeRow>;
  /** Whether nodes with these traits can run it. */
  ableBy: Map<string, boolean>;
  /** The oldest rows, as JSON. Undefined after a change. */
  oldest: { json: Buffer; ids: ReadonlySet<string> } | undefined;
}

interface FreeRow extends Aged {
  /** As it is sent. */
  json: string;
}

export interface Owner {
  key: string;
  number: number;
  tenant: string;
  address: string;
  count: number;
  /** Skipped rows that only the owner's list has: a whole list counts them there, and nowhere else. */
  skipped: number;
  createdAt: number;
}

/**
 * What nodes with a part of the list need, so that an answer costs as much as changed for its reader, and not as much as
 * changed in the table.
 *
 * Invariants: every enabled deployment is in `ownRows` of its owner and its next owner; every free one in `demands`; every
 * other row that agents read in `common`. Emptied demands and owners without a row stay until `emptyMax` newer ones are:
 * `floor` is the newest change that was forgotten with them.
 */
export interface SubsetIndex {
  changed(before: DeploymentRow | undefined, after: DeploymentRow | undefined, at: number): void;
  /** A reader behind it needs a full list. */
  floor(): number;
  /** The rows that the node runs or takes over next. */
  ownRows(address: string): Iterable<HeldRow>;
  /** Daemons, and rows with an unknown type. */
  common(): Iterable<HeldRow>;
  /** The last change after which a node may have a row too many. */
  heldChangedAt(address: string): number;
  demands: Pick<ChangeLog<Demand>, "since">;
  owners: Pick<ChangeLog<Owner>, "since">;
  /** Deployments with an owner that changed at most `ageMs` before the newest change, by owner. */
  recent(serves: (tenant: string) => boolean, ageMs: number): Record<string, number>;
}

const EMPTY_MAX = 1_000;

export function createSubsetIndex(emptyMax: number = EMPTY_MAX): SubsetIndex {
  const own = new Map<string, Map<string, HeldRow>>();
  const common = new Map<string, HeldRow>();
  const touched = new Map<string, number>();
  const demandsByKey = new Map<string, Demand>();
  const ownersByKey = new Map<string, Owner>();
  const demands = createChangeLog<Demand>();
  const owners = createChangeLog<Owner>();
  const emptyDemands = new Set<Demand>();
  const emptyOwners = new Set<Owner>();
  const recent = createRecentRows();
  let commonChangedAt = 0;
  let numbers = 0;
  let floor = 0;

  function takeOut(row: DeploymentRow, at: number): void {
    common.delete(row.id);
    recent.delete(row.id);
    if (isCommon(row)) commonChangedAt = at;
    for (const address of addressesOf(row)) {
      const rows = own.get(address);
      rows?.delete(row.id);
      if (rows?.size === 0) own.delete(address);
      touch(address, at);
    }
    if (isOwned(row)) countOwner(row, -1, at);
    if (assignmentOf(row) === "unassigned")
      changeDemand(row, at, ({ rows }) => rows.delete(row.id));
  }

  function putIn(row: DeploymentRow, at: number): void {
    const held = { position: at, row };
    if (isCommon(row)) {
      common.set(row.id, held);
      commonChangedAt = at;
    }
    for (const address of addressesOf(row)) {
      const rows = own.get(address) ?? new Map<string, HeldRow>();
      own.set(address, rows.set(row.id, held));
      touch(address, at);
    }
    recent.put(row);
    if (isOwned(row)) countOwner(row, 1, at);
    if (assignmentOf(row) === "unassigned")
      changeDemand(row, at, ({ rows }) => rows.set(row.id, freeRowOf(row)));
  }

  /** The oldest marks without a row are dropped when they are many: nodes that left for good. */
  function touch(address: string, at: number): void {
    touched.delete(address);
    touched.set(address, at);
    if (touched.size <= own.size + 2 * emptyMax) return;
    for (const [former, position] of touched) {
      if (touched.size <= own.size + emptyMax) break;
      if (own.has(former)) continue;
      touched.delete(former);
      floor = Math.max(floor, position);
    }
  }

  function countOwner(row: DeploymentRow, by: 1 | -1, at: number): void {
    const tenant = tenantOf(row);
    const key = `${tenant} ${row.address}`;
    let owner = ownersByKey.get(key);
    if (!owner) {
      const { address } = row;
      owner = { key, number: ++numbers, tenant, address, count: 0, skipped: 0, createdAt: at };
      ownersByKey.set(key, owner);
    }
    owner[row.skipped ? "skipped" : "count"] += by;
    owners.touch(owner, at);
    emptyOwners.delete(owner);
    if (owner.count + owner.skipped === 0) emptyOwners.add(owner);
    floor = Math.max(floor, forgetOldest(emptyOwners, owners, { byKey: ownersByKey, emptyMax }));
  }

  function changeDemand(row: DeploymentRow, at: number, change: (demand: Demand) => void): void {
    const spec = specOf(row);
    const key = demandKey(spec);
    const demand = demandsByKey.get(key) ?? {
      ...{ key, number: ++numbers, spec, tenant: tenantOf(row), oldest: undefined },
      ...{ rows: createRowsByAge<FreeRow>(), ableBy: new Map<string, boolean>() },
    };
    demandsByKey.set(key, demand);
    change(demand);
    demand.oldest = undefined;
    demands.touch(demand, at);
    emptyDemands.delete(demand);
    if (demand.rows.size === 0) emptyDemands.add(demand);
    floor = Math.max(floor, forgetOldest(emptyDemands, demands, { byKey: demandsByKey, emptyMax }));
  }

  return {
    changed(before, after, at) {
      if (before) takeOut(before, at);
      if (after) putIn(after, at);
    },
    floor: () => floor,
    ownRows: (address) => own.get(address)?.values() ?? [],
    common: () => common.values(),
    heldChangedAt: (address) => Math.max(commonChangedAt, touched.get(address) ?? 0),
    demands,
    owners,
    recent: recent.of,
  };
}

/** Forgets the oldest that have no row, when they are many. Returns the position of the newest one that it forgot. */
function forgetOldest<T extends { key: string }>(
  empty: Set<T>,
  log: ChangeLog<T>,
  { byKey, emptyMax }: { byKey: Map<string, T>; emptyMax: number },
): number {
  let forgotten = 0;
  if (empty.size <= 2 * emptyMax) return forgotten;
  for (const { position, item } of log.since(0)) {
    if (empty.size <= emptyMax) break;
    if (!empty.delete(item)) continue;
    log.forget(item);
    byKey.delete(item.key);
    forgotten = position;
  }
  return forgotten;
}

/** Owned rows, except those already found too old to be recent. */
function createRecentRows() {
  const young = new Map<string, DeploymentRow>();
  /** The newest change of each tenant. */
  const newestMs = new Map<string, number>();

  return {
    delete: (id: string) => young.delete(id),
    put(row: DeploymentRow): void {
      if (row.skipped) return;
      const tenant = tenantOf(row);
      newestMs.set(tenant, Math.max(newestMs.get(tenant) ?? 0, row.updated_at.getTime()));
      if (assignmentOf(row) === "assigned") young.set(row.id, row);
    },
    of(serves: (tenant: string) => boolean, ageMs: number): Record<string, number> {
      const newest = [...newestMs].flatMap(([tenant, ms]) => (serves(tenant) ? ms : []));
      const sinceMs = Math.max(...newest, 0) - ageMs;
      const recent: Record<string, number> = {};
      for (const [id, row] of young) {
        const ms = row.updated_at.getTime();
        if (ms > sinceMs && serves(tenantOf(row)))
          recent[row.address] = (recent[row.address] ?? 0) + 1;
        // The newest change of a tenant only rises: this row is recent for no reader any more.
        else if (ms <= newestMs.get(tenantOf(row))! - ageMs) young.delete(id);
      }
      return recent;
    },
  };
}

const isCommon = (row: DeploymentRow): boolean =>
  row.type === "daemon" || !isDeploymentType(row.type);

const isOwned = ({ type, enabled, address, isHidden }: DeploymentRow): boolean =>
  type === "deployment" && enabled && address !== "" && !isHidden;

const addressesOf = ({ type, enabled, address, moving_to }: DeploymentRow): string[] =>
  type === "deployment" && enabled
    ? [...new Set([address, moving_to])].filter((one) => one !== "")
    : [];

function specOf(row: DeploymentRow): Demand["spec"] {
  const { selector, package_name, package_version, command } = row;
  const loader_env = [...loaderVariables(row.env)];
  return {
    ...{ tenant: tenantOf(row), selector, package_name, package_version, command },
    ...(loader_env.length > 0 && { loader_env }),
    ...(usesSecrets(row) && { uses_secrets: true }),
  };
}

function freeRowOf(row: DeploymentRow): FreeRow {
  const [updated_at, created_at] = [row.updated_at.toISOString(), row.created_at.toISOString()];
  const { id, generation } = row;
  return {
    id,
    updated_at,
    created_at,
    json: JSON.stringify([id, generation, updated_at, created_at]),
  };
}

/** One row more than a pass considers: the agent sees that there are more, and looks at its claim window. */
const OLDEST_MAX = FREE_ROWS_MAX + 1;

/** The same for all nodes, so written once per change. */
export function oldestOf(demand: Demand): NonNullable<Demand["oldest"]> {
  if (!demand.oldest) {
    const rows = demand.rows.oldest(OLDEST_MAX);
    demand.oldest = {
      json: Buffer.from(rows.map(({ json }) => json).join(",")),
      ids: new Set(rows.map(({ id }) => id)),
    };
  }
  return demand.oldest;
}
