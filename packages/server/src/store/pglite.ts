import { EventEmitter } from "node:events";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { TenureError } from "@tenure/protocol";
import type { Db, PostgresStore, Result } from "./db.ts";
import { type DirectoryLock, lockDirectory } from "./directory-lock.ts";
import type { Answer, Ask, Heard } from "./pglite-worker.ts";

export interface PgliteOptions {
  dataDir: string;
  /** How long a caller waits for one statement. The embedded Postgres ignores `statement_timeout`. */
  statementTimeoutMs?: number;
  /** The directory is ours; now the database is opened, or made. */
  onOpening?: () => void;
  onError?: (error: unknown) => void;
}

type AskWithoutId = Ask extends infer A ? (A extends Ask ? Omit<A, "id"> : never) : never;

/**
 * The embedded Postgres: in a thread of its own, one session, one process per directory.
 *
 * One session means that statements run one after another and that a transaction keeps everybody else
 * out. That is why a `for update` here excludes nobody and races are tested on a server.
 */
export async function openPglite(options: PgliteOptions): Promise<PostgresStore> {
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

async function openLocked(options: PgliteOptions, lock: DirectoryLock): Promise<PostgresStore> {
  const thread = await startThread(join(options.dataDir, "postgres"), options);
  const { ask } = thread;
  // Whoever is in line waits for the one before, so a transaction is one turn of this line.
  let line: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const turn = line.then(work);
    line = turn.catch(() => {});
    return turn;
  };

  const session: Db = {
    query: <Row>({ text, values }: { text: string; values: readonly unknown[] }) =>
      ask<Row>({ kind: "query", text, values }),
    transaction: (work) => work(session),
    script: async (text) => void (await ask({ kind: "script", text })),
  };

  return {
    kind: "embedded",
    durability:
      "embedded Postgres: a commit is synced to disk before it is acknowledged; one server per data directory",
    query: (statement) => inTurn(() => session.query(statement)),
    transaction: (work) => inTurn(() => transact(ask, session, work)),
    script: (text) => inTurn(() => session.script(text)),
    async listen(channel, hear) {
      thread.heard.on(channel, hear);
      await inTurn(() => ask({ kind: "listen", channel }));
    },
    async close() {
      try {
        await inTurn(() => ask({ kind: "close" }));
      } finally {
        // Also when it does not answer in time: the thread is ended in its stead. The store survives that.
        await thread.end();
        lock.release();
      }
    },
  };
}

interface Caller {
  resolve: (result: Result<unknown>) => void;
  reject: (error: unknown) => void;
}

type AskFn = <Row>(ask: AskWithoutId) => Promise<Result<Row>>;

async function transact<T>(ask: AskFn, session: Db, work: (tx: Db) => Promise<T>): Promise<T> {
  await ask({ kind: "script", text: "begin" });
  try {
    const value = await work(session);
    await ask({ kind: "script", text: "commit" });
    return value;
  } catch (error) {
    await ask({ kind: "script", text: "rollback" });
    throw error;
  }
}

async function startThread(directory: string, options: PgliteOptions) {
  const worker = new Worker(workerFile(), { workerData: { directory } });
  const waiting = new Map<number, Caller>();
  const heard = new EventEmitter().setMaxListeners(0);
  let lastId = 0;
  let failure: TenureError<"DEPENDENCY_DOWN"> | undefined;

  const down = (reason: string, cause?: unknown) =>
    new TenureError("DEPENDENCY_DOWN", { dependency: "embedded postgres", reason }, { cause });

  function fail(reason: string, cause?: unknown): void {
    failure ??= down(reason, cause);
    for (const { reject } of waiting.values()) reject(failure);
    waiting.clear();
  }

  await new Promise<void>((resolve, reject) => {
    worker.once("message", () => resolve());
    worker.once("error", reject);
    worker.once("exit", () => reject(new Error("the embedded Postgres ended while it was opened")));
  });
  worker.on("error", (error) => {
    fail(`its thread failed: ${error instanceof Error ? error.message : String(error)}`, error);
    options.onError?.(error);
  });
  worker.on("exit", () => fail("its thread has ended"));
  worker.on("message", (answer: Answer | Heard) => {
    if ("heard" in answer) return void heard.emit(answer.heard);
    const caller = waiting.get(answer.id);
    waiting.delete(answer.id);
    if (!caller) return;
    if ("error" in answer)
      caller.reject(Object.assign(new Error(answer.error.message), answer.error));
    else caller.resolve(answer);
  });

  const ask: AskFn = <Row>(request: AskWithoutId) =>
    new Promise<Result<Row>>((resolve, reject) => {
      if (failure) return reject(failure);
      const id = ++lastId;
      const limitMs = options.statementTimeoutMs ?? 30_000;
      const timer = setTimeout(
        () => settle(() => reject(down(`no answer within ${limitMs} ms`))),
        limitMs,
      );
      const settle = (then: () => void) => {
        clearTimeout(timer);
        waiting.delete(id);
        then();
      };
      waiting.set(id, {
        resolve: (result) => settle(() => resolve(result as Result<Row>)),
        reject: (error) => settle(() => reject(error)),
      });
      worker.postMessage({ ...request, id });
    });

  return { ask, heard, end: async () => void (await worker.terminate()) };
}

// Tests run from source, where Node cannot start a `.ts` thread: they use the build of the same file.
function workerFile(): URL {
  const own = new URL("./pglite-worker.js", import.meta.url);
  return import.meta.url.endsWith(".ts")
    ? new URL("../../dist/store/pglite-worker.js", import.meta.url)
    : own;
}
