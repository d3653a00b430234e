import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createSmallDisk } from "@tenure/testing/stores/small-disk";
import { until } from "@tenure/testing/until";
import { expect, onTestFinished, test, vi } from "vitest";
import type { PostgresStore } from "../db.ts";
import { sql } from "../sql.ts";
import { openPglite, type PgliteOptions } from "./pglite.ts";

// The embedded store and its disk: what it does when that is full, and how much of it it takes.

vi.setConfig({ testTimeout: 120_000 });

const MB = 1024 * 1024;
const disk = createSmallDisk(join(scratchDirectory("disk"), "small"), 200);

test.skipIf(!disk)(
  "a full disk is DEPENDENCY_DOWN, and works again when there is room",
  async () => {
    onTestFinished(() => disk!.discard());
    const errors: unknown[] = [];
    const onError = (error: unknown) => errors.push(error);
    const db = await open(disk!.directory, { onError });
    await db.script("create table note (text text)");
    let heard = 0;
    await db.listen("wake", () => heard++);
    const write = () => db.query(sql`insert into note values (repeat(${"x"}, 1000))`);
    await write();
    await db.checkDisk();

    await disk!.fill();
    await expect(db.checkDisk()).rejects.toMatchObject({ code: "DEPENDENCY_DOWN" });
    const filled = async () => {
      for (let page = 0; page < 100; page++) await write();
    };
    await expect(filled()).rejects.toMatchObject({ code: "DEPENDENCY_DOWN", retryable: true });

    // Until the log itself finds no room: there Postgres gives up, and the thread with it.
    const log = () => db.query(sql`select pg_logical_emit_message(true, 'x', repeat('y', 500000))`);
    const exhausted = async () => {
      for (let message = 0; message < 200; message++) await log();
    };
    await expect(exhausted()).rejects.toMatchObject({ code: "DEPENDENCY_DOWN" });
    await until(() => errors.length > 0, { what: "the report that it gave up" });
    await expect(write()).rejects.toMatchObject({ code: "DEPENDENCY_DOWN" });

    disk!.free();
    await until(() => write().then(() => true), { deadlineMs: 60_000, what: "a write again" });
    await db.checkDisk();
    const notified = async () => {
      const before = heard;
      await db.query(sql`select pg_notify('wake', '')`);
      return heard > before;
    };
    await until(notified, { what: "to hear a wake-up again" });
  },
);

test("log and dead rows stay bounded while it runs", async () => {
  const dataDir = scratchDirectory("embedded");
  const db = await open(dataDir, { upkeep: { checkIntervalMs: 50, vacuumIntervalMs: 200 } });
  await db.script("create table spec (id int primary key, body text)");
  await db.script("alter table spec alter body set storage external");
  await db.script("insert into spec select g, repeat('x', 50000) from generate_series(1, 40) g");
  let written = 0;
  let longestMs = 0;
  let logMax = 0;
  // 2 MB a turn, 200 MB in all. Of the log some 80 MB are segments that Postgres keeps to use again.
  for (let turn = 0; turn < 100; turn++) {
    const askedMs = performance.now();
    await db.query(sql`update spec set body = repeat(${String(turn % 10)}, 50000)`);
    longestMs = Math.max(longestMs, performance.now() - askedMs);
    written += 2;
    logMax = Math.max(logMax, sizeOf(join(dataDir, "postgres", "pg_wal")));
  }
  const base = sizeOf(join(dataDir, "postgres", "base"));
  const { rows } = await db.query<{ bytes: number }>(
    sql`select pg_total_relation_size('spec') as bytes`,
  );
  console.info(
    `${written} MB written: at most ${mb(logMax)} MB of log, table ${mb(rows[0]!.bytes)} MB, base ${mb(base)} MB, longest statement ${longestMs.toFixed(0)} ms`,
  );
  expect(logMax).toBeLessThan(150 * MB);
  expect(rows[0]!.bytes).toBeLessThan(100 * MB);
});

async function open(dataDir: string, options: Partial<PgliteOptions> = {}): Promise<PostgresStore> {
  const db = await openPglite({ dataDir, ...options });
  onTestFinished(() => db.close().catch(() => {}));
  return db;
}

const mb = (bytes: number): string => (bytes / MB).toFixed(0);

function sizeOf(directory: string): number {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => sizeOfFile(join(entry.parentPath, entry.name)))
    .reduce((sum, bytes) => sum + bytes, 0);
}

/** A file may be gone between the listing and the look at it. */
function sizeOfFile(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

const tiny = createSmallDisk(join(scratchDirectory("disk"), "tiny"), 12);

test.skipIf(!tiny)("a first start without room for the database says so", async () => {
  onTestFinished(() => tiny!.discard());
  await expect(open(tiny!.directory)).rejects.toThrow("no space left on the disk");
});
