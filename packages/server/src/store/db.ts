import assert from "node:assert";
import type { Sql } from "./sql.ts";

export interface Result<Row> {
  rows: Row[];
  rowCount: number;
}

/** Postgres, whichever it is. One statement per call; whoever needs several says `transaction`. */
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
   * Calls `hear` after each NOTIFY on the channel, and after every reconnect: what was said in between is
   * lost, so whoever listens looks for themselves.
   */
  listen(channel: string, hear: () => void): Promise<void>;
  close(): Promise<void>;
}

/** `int8` of both drivers. Ours stay below 2^53 by contract, and a value that does not must not be rounded. */
export function parseInt8(text: string): number {
  const value = Number(text);
  assert(Number.isSafeInteger(value), `int8 ${text} is beyond 2^53-1`);
  return value;
}

export const INT8_OID = 20;
