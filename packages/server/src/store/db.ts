import assert from "node:assert";
import type { Sql } from "./sql.ts";

export interface Result<Row> {
  rows: Row[];
  rowCount: number;
}

/** Postgres, server or embedded. One statement per call; several need `transaction`. */
export interface Db {
  query<Row = Record<string, never>>(statement: Sql): Promise<Result<Row>>;
  /** Commits when `work` resolves, rolls back when it throws. `tx` is good only inside. */
  transaction<T>(work: (tx: Db) => Promise<T>): Promise<T>;
  /** Runs a text of several statements, without values. For migrations. */
  script(text: string): Promise<void>;
}

export interface PostgresStore extends Db {
  readonly kind: "embedded" | "postgres";
  /** What an acknowledged write survives, in one sentence for the operator. */
  readonly durability: string;
  /**
   * Calls `listener` after each NOTIFY on the channel, and after every reconnect, because notifications in between are
   * lost: a listener reads the state again.
   */
  listen(channel: string, listener: () => void): Promise<void>;
  /** Throws `DEPENDENCY_DOWN` when the disk of an embedded store has no room left. */
  checkDisk(): Promise<void>;
  close(): Promise<void>;
}

/** `int8` of both drivers. Ours stay below 2^53 by contract, and a value that does not must not be rounded. */
export function parseInt8(text: string): number {
  const value = Number(text);
  assert(Number.isSafeInteger(value), `int8 ${text} is beyond 2^53-1`);
  return value;
}

export const INT8_OID = 20;

/**
 * `timestamptz` of both drivers. Postgres takes times that no `Date` and no RFC 3339 text can hold ('infinity', the year
 * 294276), and one such row must not make a whole list unreadable: it reads as the first or the last moment there is.
 */
export function parseTimestamp(text: string): Date {
  if (text === "-infinity" || text.endsWith("BC")) return new Date(EARLIEST_MS);
  // "2026-11-17 22:24:00.123456+00"; a role with another DateStyle gives something that `Date` may know itself.
  const iso = text.replace(/^(\d{4}-\d\d-\d\d) /, "$1T").replace(/([+-]\d\d)$/, "$1:00");
  const ms = Date.parse(iso);
  // A year of five digits or more is no date of RFC 3339.
  return new Date(Number.isNaN(ms) ? LATEST_MS : Math.min(Math.max(ms, EARLIEST_MS), LATEST_MS));
}

const EARLIEST_MS = Date.parse("0001-01-01T00:00:00.000Z");
const LATEST_MS = Date.parse("9999-12-31T23:59:59.999Z");

export const TIMESTAMPTZ_OID = 1184;
