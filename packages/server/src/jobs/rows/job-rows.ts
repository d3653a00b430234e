import { batchWhileBusy } from "../../kernel/batch.ts";
import type { Db } from "../../store/db.ts";
import type { JobAttempt } from "../job.ts";
import {
  decideRows,
  type End,
  type Ended,
  endRows,
  followRecords,
  type Inserted,
  insertRows,
  markDue,
  type NewRow,
  type OpenRow,
  poolsWithDue,
  type Raise,
  type Raised,
  type Refill,
  type RowWithPayload,
  raiseRows,
  readOpenRows,
  readRow,
  readRowOfRequest,
  refillRows,
  takeDue,
  undoRows,
  type WholeRow,
  writeLimit,
} from "./row-store.ts";

/** The writes of durable jobs that callers wait for. Calls that come while a statement runs share the next one. */
export interface JobRows {
  insert(row: NewRow): Promise<Inserted>;
  undo(job: JobAttempt): Promise<unknown>;
  decide(jobIds: readonly string[]): Promise<void>;
  raise(raise: Raise): Promise<Raised>;
  end(end: End): Promise<Ended>;
  read(jobId: string): Promise<WholeRow | undefined>;
  ofRequest(request: { tenant: string; requestId: string }): Promise<WholeRow | undefined>;
  /** Open rows in the order of their ids, after `afterId`. */
  open(page: { afterId: string | undefined; limit: number }): Promise<OpenRow[]>;
  refill(refills: readonly Refill[]): Promise<RowWithPayload[]>;
  writeLimit(payloadBytesMax: number): Promise<void>;
  markDue(limit: number): Promise<boolean>;
  poolsWithDue(): Promise<string[]>;
  takeDue(from: { pool: string; limit: number }): Promise<RowWithPayload[]>;
  follow(records: readonly JobAttempt[]): Promise<void>;
}

/** Bytes of one statement, about. */
const BATCH_BYTES_MAX = 4 * 2 ** 20;

export function createJobRows(db: Db): JobRows {
  return {
    read: (jobId) => readRow(db, jobId),
    ofRequest: (request) => readRowOfRequest(db, request),
    open: (page) => readOpenRows(db, page),
    refill: (refills) => refillRows(db, refills),
    writeLimit: (payloadBytesMax) => writeLimit(db, payloadBytesMax),
    markDue: (limit) => markDue(db, limit),
    poolsWithDue: () => poolsWithDue(db),
    takeDue: (from) => takeDue(db, from),
    follow: (records) => followRecords(db, records),
    insert: batchWhileBusy((rows) => insertRows(db, rows), {
      weightOf: ({ payload }) => payload.length,
      weightMax: BATCH_BYTES_MAX,
    }),
    undo: batchWhileBusy(async (jobs: JobAttempt[]) => {
      await undoRows(db, jobs);
      return jobs;
    }),
    decide: (jobIds) => decideRows(db, jobIds),
    raise: batchWhileBusy((raises) => raiseRows(db, raises)),
    end: batchWhileBusy((ends) => endRows(db, ends), {
      weightOf: ({ result = "" }) => result.length,
      weightMax: BATCH_BYTES_MAX,
    }),
  };
}
