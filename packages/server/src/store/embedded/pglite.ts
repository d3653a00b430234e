import { statfs } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../kernel/clock.ts";
import { createPriorityLine } from "../../kernel/priority-line.ts";
import { every } from "../../kernel/service.ts";
import type { Db, PostgresStore } from "../db.ts";
import { type DirectoryLock, lockDirectory } from "./directory-lock.ts";
import { makeDatabase } from "./make-database.ts";
import { type AskThread, down, type PgliteThread, startThread } from "./pglite-thread.ts";
import { createUpkeep, type UpkeepSettings } from "./pglite-upkeep.ts";

export interface PgliteOptions {
  dataDir: string;
  /** How long a caller waits for one statement. The embedded Postgres ignores `statement_timeout`. */
  statementTimeoutMs?: number;
  upkeep?: Partial<UpkeepSettings>;
  /** The directory is ours; now the database is opened, or made. */
  onOpening?: () => void;
  onError?: (error: unknown) => void;
}

const STATEMENT_TIMEOUT_MS = 30_000;
/** Vacuuming a large table takes longer than any statement of ours. */
const UPKEEP_LIMIT_MS = 10 * 60_000;
const REOPEN_INTERVAL_MS = 2_000;
/** One segment of the write-ahead log: without room for the next one Postgres gives up. */
const DISK_FREE_MIN_BYTES = 16 * 1024 * 1024;

export interface EmbeddedStore extends PostgresStore {
  /** The same database; statements given here go before all others that wait. */
  readonly first: PostgresStore;
}

/**
 * The embedded Postgres: in a thread of its own, one session, one process per directory.
 *
 * It has one session: statements run one after another, and a transaction excludes all other statements. A `for update`
 * therefore has no effect here, and races are tested on a server.
 */
export async function openPglite(options: PgliteOptions): Promise<EmbeddedStore> {
  const lock = lockDirectory(options.dataDir);
  if ("heldBy" in lock) {
    throw new Error(
      `the data directory ${options.dataDir} is in use by another server (${lock.heldBy}); give each its own`,
    );
  }
  try {
    options.onOpening?.();
    return await openLocked(options, lock);
  } catch (error) {
    lock.release();
    throw error;
  }
}

async function openLocked(options: PgliteOptions, lock: DirectoryLock): Promise<EmbeddedStore> {
  const directory = join(options.dataDir, "postgres");
  await makeDatabase(directory, lock);
  const threads = await keepThread(directory, options);
  // A statement waits for the one before, so a transaction is one turn of this line.
  const line = createPriorityLine();
  // The thread is chosen when the turn comes, and stays for all of a transaction.
  const inTurn: InTurn = (work) => line.add(() => work(threads.current().ask));
  const inFirstTurn: InTurn = (work) => line.addFirst(() => work(threads.current().ask));
  const upkeep = createUpkeep(
    {
      query: (statement) => inTurn((ask) => sessionOf(ask).query(statement)),
      run: (text) => inTurn(async (ask) => void (await ask(script(text), UPKEEP_LIMIT_MS))),
      onError: (error) => options.onError?.(error),
    },
    options.upkeep,
  );
  upkeep.start();

  const store: PostgresStore = {
    kind: "embedded",
    durability:
      "embedded Postgres: a commit is synced to disk before it is acknowledged; one server per data directory",
    ...statementsIn(inTurn),
    async listen(channel, listener) {
      threads.onNotification(channel, listener);
      await inTurn((ask) => ask({ kind: "listen", channel }));
    },
    async checkDisk() {
      const { bavail, bsize } = await statfs(options.dataDir);
      if (bavail * bsize < DISK_FREE_MIN_BYTES) throw down("the disk of data_dir is full");
    },
    async close() {
      try {
        await upkeep.stop();
        await inTurn((ask) => ask({ kind: "close" }));
      } finally {
        // Also when it does not answer in time: the thread is ended in its stead. The store survives that.
        await threads.end();
        lock.release();
      }
    },
  };
  return { ...store, first: { ...store, ...statementsIn(inFirstTurn) } };
}

type InTurn = <T>(work: (ask: AskThread) => Promise<T>) => Promise<T>;

const statementsIn = (inTurn: InTurn): Db => ({
  query: (statement) => inTurn((ask) => sessionOf(ask).query(statement)),
  transaction: (work) => inTurn((ask) => transact(ask, work)),
  script: (text) => inTurn((ask) => sessionOf(ask).script(text)),
});

/**
 * The thread, and another one in its place when it fails. A Postgres that cannot write its log gives up (PANIC); a server
 * would be started again by its supervisor. What was committed is on the disk, so opening it again is a crash recovery.
 */
async function keepThread(directory: string, options: PgliteOptions) {
  const limits = {
    statementTimeoutMs: options.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS,
    onError: options.onError,
  };
  const listeners: { channel: string; listener: () => void }[] = [];
  let isEnding = false;
  let thread: PgliteThread = await startThread(directory, limits);
  let reason: string | undefined;
  watch();

  function watch(): void {
    void thread.failed.then(async (failure) => {
      if (isEnding) return;
      reason = failure;
      options.onError?.(down(failure));
      await thread.end();
      reopening.start();
    });
  }

  async function reopen(): Promise<void> {
    if (reason === undefined) return;
    const fresh = await startThread(directory, limits);
    if (isEnding) return fresh.end();
    thread = fresh;
    watch();
    for (const { channel, listener } of listeners) {
      thread.notifications.on(channel, listener);
      await thread.ask({ kind: "listen", channel });
      listener();
    }
    reason = undefined;
  }

  const reopening = every(REOPEN_INTERVAL_MS, reopen, {
    clock: systemClock,
    onError: (error) => options.onError?.(error),
  });

  return {
    current(): PgliteThread {
      if (reason !== undefined) throw down(reason);
      return thread;
    },
    onNotification(channel: string, listener: () => void): void {
      listeners.push({ channel, listener });
      thread.notifications.on(channel, listener);
    },
    async end(): Promise<void> {
      isEnding = true;
      await reopening.stop();
      await thread.end();
    },
  };
}

const script = (text: string) => ({ kind: "script", text }) as const;

function sessionOf(ask: AskThread): Db {
  const session: Db = {
    query: <Row>({ text, values }: { text: string; values: readonly unknown[] }) =>
      ask<Row>({ kind: "query", text, values }),
    transaction: (work) => work(session),
    script: async (text) => void (await ask(script(text))),
  };
  return session;
}

async function transact<T>(ask: AskThread, work: (tx: Db) => Promise<T>): Promise<T> {
  await ask(script("begin"));
  try {
    const value = await work(sessionOf(ask));
    await ask(script("commit"));
    return value;
  } catch (error) {
    await ask(script("rollback"));
    throw error;
  }
}
