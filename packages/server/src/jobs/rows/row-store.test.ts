import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DATABASES, openTestDb, type TestDb } from "../../../testing/databases.ts";
import { migrate } from "../../store/migrate.ts";
import { sql } from "../../store/sql.ts";
import {
  endRows,
  forgetRows,
  insertRows,
  markDue,
  type NewRow,
  poolsWithDue,
  raiseRows,
  readHeads,
  readOpenRows,
  readRow,
  readRowOfRequest,
  refillRows,
  takeDue,
  undoRows,
} from "./row-store.ts";

const DAY_MS = 86_400_000;

describe.each(DATABASES)("rows of durable jobs on %s", (kind) => {
  let store: TestDb;
  beforeAll(async () => {
    store = await openTestDb(kind);
    await migrate(store.db);
  });
  afterAll(() => store.close());
  beforeEach(() => store.db.script("truncate job"));

  const head = async (n: number) => (await readHeads(store.db, [{ jobId: id(n) }]))[0];

  test("a row is inserted once for a request, also within one call", async () => {
    const rows = [row(1), row(2, { requestId: "r1" }), row(3)];
    expect(await insertRows(store.db, rows)).toEqual(["inserted", "conflict", "inserted"]);
    expect(await insertRows(store.db, [row(4, { requestId: "r3" }), row(5)])).toEqual([
      "conflict",
      "inserted",
    ]);
    const same = { tenant: "other", requestId: "r1" };
    expect(await insertRows(store.db, [row(6, same)])).toEqual(["inserted"]);
    expect(await readRowOfRequest(store.db, same)).toMatchObject({ jobId: id(6) });
  });

  test("payload and result are the text that was given", async () => {
    const payload = '{"a": 1.0e400, "b":"\\ud800", "a" :  9007199254740993}';
    await insertRows(store.db, [row(1, { payload })]);
    const end = { jobId: id(1), attemptId: 1, outcome: "succeeded", result: payload } as const;
    expect(await endRows(store.db, [end])).toEqual(["ended"]);
    expect(await readRow(store.db, id(1))).toMatchObject({ payload, result: payload });
  });

  test("only rows whose request is not decided are undone", async () => {
    await insertRows(store.db, [row(1), row(2), row(3)]);
    await raiseRows(store.db, [raise(2, 1)]);
    await endRows(store.db, [end(3, 1)]);
    const at = (n: number, attemptId: number) => ({ jobId: id(n), attemptId });
    await undoRows(store.db, [at(1, 1), at(2, 1), at(2, 2), at(3, 1)]);
    expect(await head(1)).toBeUndefined();
    expect(await head(2)).toMatchObject({ state: "open", attemptId: 2 });
    expect(await head(3)).toMatchObject({ state: "ended" });
  });

  test("an attempt is raised once, and the same call again finds it raised", async () => {
    await insertRows(store.db, [row(1)]);
    expect(await raiseRows(store.db, [raise(1, 1)])).toEqual(["raised"]);
    expect(await raiseRows(store.db, [raise(1, 1)])).toEqual(["raised"]);
    expect(await head(1)).toMatchObject({ attemptId: 2, countedAttempts: 1 });
    expect(await raiseRows(store.db, [raise(1, 2), raise(9, 1)])).toEqual(["raised", "over"]);
    expect(await raiseRows(store.db, [raise(1, 1)])).toEqual(["over"]);
    await endRows(store.db, [end(1, 3)]);
    expect(await raiseRows(store.db, [raise(1, 3), raise(1, 2)])).toEqual(["over", "over"]);
  });

  test("a job in back-off waits in the table until it is due", async () => {
    await insertRows(store.db, [row(1)]);
    const paused = { ...raise(1, 1), backOffMs: 60_000 };
    expect(await raiseRows(store.db, [paused])).toEqual(["waiting"]);
    expect(await raiseRows(store.db, [paused, raise(1, 2)])).toEqual(["waiting", "over"]);
    expect(await head(1)).toMatchObject({ state: "scheduled", attemptId: 2 });
    expect(await markDue(store.db, 10)).toBe(false);
    expect(await takeDue(store.db, { pool: "p", limit: 10 })).toEqual([]);
    await store.db.query(sql`update job set run_at = run_at - interval '1 minute'`);
    await markDue(store.db, 10);
    expect(await takeDue(store.db, { pool: "p", limit: 10 })).toMatchObject([
      { jobId: id(1), attemptId: 2, payload: "1", state: "open" },
    ]);
  });

  test("only the current attempt ends a job, and once", async () => {
    await insertRows(store.db, [row(1), row(2)]);
    await raiseRows(store.db, [raise(1, 1)]);
    expect(await endRows(store.db, [end(1, 1), end(9, 1)])).toEqual(["stale", "absent"]);
    expect(await endRows(store.db, [end(1, 2), end(2, 1), end(1, 2)])).toEqual([
      "ended",
      "ended",
      "duplicate",
    ]);
    const failed = { ...end(1, 2), outcome: "failed" } as const;
    expect(await endRows(store.db, [failed, end(1, 2)])).toEqual(["stale", "duplicate"]);
    expect(await head(1)).toMatchObject({ state: "ended", outcome: "succeeded", attemptId: 2 });
  });

  test("a job that waits in the table can be ended", async () => {
    await insertRows(store.db, [row(1, { state: "scheduled", runInMs: DAY_MS })]);
    expect(await endRows(store.db, [{ ...end(1, 1), outcome: "cancelled" }])).toEqual(["ended"]);
    expect(await head(1)).toMatchObject({ state: "ended", outcome: "cancelled" });
  });

  test("a lost job is refilled once, above every attempt that row or record had", async () => {
    await insertRows(store.db, [row(1), row(2), row(3)]);
    await endRows(store.db, [end(3, 1)]);
    const lost = [refill(1, 1, 0), refill(2, 1, 7), refill(3, 1, 0)];
    const filled = (await refillRows(store.db, lost)).map(({ jobId, attemptId }) => ({
      jobId,
      attemptId,
    }));
    expect(filled.sort((a, b) => a.attemptId - b.attemptId)).toEqual([
      { jobId: id(1), attemptId: 2 },
      { jobId: id(2), attemptId: 8 },
    ]);
    expect(await refillRows(store.db, lost)).toEqual([]);
  });

  test("open rows are read in pages", async () => {
    await insertRows(store.db, [row(1), row(2), row(3), row(4, { state: "scheduled" })]);
    const first = await readOpenRows(store.db, { afterId: undefined, limit: 2 });
    expect(first.map(({ jobId }) => jobId)).toEqual([id(1), id(2)]);
    expect(first[0]!.isYoung).toBe(true);
    const rest = await readOpenRows(store.db, { afterId: id(2), limit: 2 });
    expect(rest.map(({ jobId }) => jobId)).toEqual([id(3)]);
  });

  test("due jobs come by priority, tenants in turns, then by age", async () => {
    const due = { state: "scheduled" } as const;
    const crowd = Array.from({ length: 20 }, (_, n) => row(10 + n, { ...due, tenant: "many" }));
    await insertRows(store.db, crowd);
    await insertRows(store.db, [
      row(1, { ...due, tenant: "few" }),
      row(2, { ...due, tenant: "few" }),
      row(3, { ...due, tenant: "few", priority: 5 }),
      row(4, { ...due, pool: "other" }),
    ]);
    await store.db.query(
      sql`update job set run_at = tenure_now() - interval '1 hour' where tenant = 'many'`,
    );
    await markDue(store.db, 100);
    expect(await poolsWithDue(store.db)).toEqual(["other", "p"]);
    const taken = await takeDue(store.db, { pool: "p", limit: 5 });
    const tenants = taken.map(({ tenant }) => tenant).sort();
    expect(taken.map(({ jobId }) => jobId)).toContain(id(3));
    expect(tenants).toEqual(["few", "few", "few", "many", "many"]);
    expect(await takeDue(store.db, { pool: "p", limit: 100 })).toHaveLength(18);
    expect(await poolsWithDue(store.db)).toEqual(["other"]);
  });

  test("ended rows leave after the history, a bounded number at a time", async () => {
    await insertRows(store.db, [row(1), row(2), row(3), row(4)]);
    await endRows(store.db, [end(1, 1), end(2, 1), end(3, 1)]);
    const old = { olderThanMs: 7 * DAY_MS, limit: 1 };
    expect(await forgetRows(store.db, old)).toBe(false);
    await store.db.query(
      sql`update job set ended_at = ended_at - interval '8 days' where job_id in (${id(1)}, ${id(2)})`,
    );
    expect(await forgetRows(store.db, old)).toBe(true);
    expect(await forgetRows(store.db, old)).toBe(true);
    expect(await forgetRows(store.db, old)).toBe(false);
    const left = await readHeads(
      store.db,
      [1, 2, 3, 4].map((n) => ({ jobId: id(n) })),
    );
    expect(left.map(({ jobId }) => jobId).sort()).toEqual([id(3), id(4)]);
  });
});

const id = (n: number): string => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`;

const row = (n: number, given: Partial<NewRow> = {}): NewRow => ({
  jobId: id(n),
  tenant: "default",
  requestId: `r${n}`,
  bodyHash: "hash",
  pool: "p",
  priority: 0,
  spec: {},
  payload: "1",
  state: "open",
  runInMs: 0,
  ...given,
});

const raise = (n: number, attemptId: number) => ({ jobId: id(n), attemptId, countedAttempts: 1 });

const end = (n: number, attemptId: number) =>
  ({ jobId: id(n), attemptId, outcome: "succeeded" }) as const;

const refill = (n: number, seenAttemptId: number, hotAttemptId: number) => ({
  jobId: id(n),
  seenAttemptId,
  hotAttemptId,
});
