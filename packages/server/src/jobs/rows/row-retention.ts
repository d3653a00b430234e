import type { Db } from "../../store/db.ts";
import { forgetRows } from "./row-store.ts";

const DAY_MS = 86_400_000;
const DELETED_MAX = 1_000;

/** Deletes the rows of jobs that ended before the history, a bounded number in each statement. */
export async function forgetEndedRows(db: Db, historyDays: number): Promise<void> {
  while (await forgetRows(db, { olderThanMs: historyDays * DAY_MS, limit: DELETED_MAX }));
}
