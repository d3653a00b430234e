import type { CallResult } from "@tenure/protocol";
import type { Costs } from "./costs.ts";

/** The content of an answer to `deployment.list`. */
export interface ListParts {
  /** Rows in full. */
  rows: number;
  /** Ids of all rows that the node has in full. */
  held: number;
  /** Kinds of free rows that changed, and the free rows that are sent for them. */
  demands: number;
  free: number;
  /** Owners with a changed count, and those of them with their address. */
  owners: number;
  named: number;
}

export const NO_PARTS: ListParts = { rows: 0, held: 0, demands: 0, free: 0, owners: 0, named: 0 };

export function partsOf({ items, subset }: CallResult<"deployment.list">): ListParts {
  const { held = [], free = [], owners = [] } = subset ?? {};
  return {
    ...{ rows: items.length, held: held.length, demands: free.length },
    free: free.reduce((sum, { rows }) => sum + rows.length, 0),
    ...{ owners: owners.length, named: owners.filter(({ length }) => length > 2).length },
  };
}

/** What the server counts for the length of an answer. */
export const countedBytes = (
  { rows, demands, free, owners, named }: ListParts,
  { rowBytes, demandBytes, freeRowBytes, ownerBytes, namedOwnerBytes }: Costs,
): number =>
  rows * rowBytes +
  demands * demandBytes +
  free * freeRowBytes +
  (owners - named) * ownerBytes +
  named * namedOwnerBytes;

export const bytesOf = (parts: ListParts, costs: Costs): number =>
  countedBytes(parts, costs) + parts.held * costs.heldBytes;

/** CPU of an instance for the answer. */
export const writingMs = (
  { rows, demands, owners }: ListParts,
  { listMs, listRowMs, listDemandMs, listOwnerMs }: Costs,
): number => listMs + rows * listRowMs + demands * listDemandMs + owners * listOwnerMs;
